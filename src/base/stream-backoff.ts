import { Backoff, type BackoffBounds } from "./backoff.ts";
import { type Clock, pause } from "./clock.ts";
import { hasReason } from "./errors.ts";

/** What a client knows of the connections to its servers. Pauses end early by it. */
export interface Reachability {
  /** Whether a server is connected and not ejected, while another one is ejected: a new stream goes to the first. */
  readonly hasAlternative: boolean;
  /**
   * Keeps connecting to the servers, and calls the listener when a connection becomes ready: at most once in 10 s, so
   * that a server that accepts connections and breaks them is not asked each time. Returns a function that ends this.
   */
  onReady(listener: () => void): () => void;
}

interface StreamBackoffOptions {
  readonly bounds: BackoffBounds;
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
  /** Default: pauses never end early. */
  readonly reachability?: Reachability | undefined;
}

/**
 * Within which time streams are opened that may be opened at once, in milliseconds, so that all streams of all clients
 * of a server do not come together.
 */
const spreadMs = 200;

/** How long a stream must have served for its planned end not to count as a failure, in milliseconds. */
const plannedAfterMs = 1_000;

/**
 * The pauses between the streams of one watch, the same for every watch of the client library and of a Reflector:
 *
 * - The pauses grow with each failure. They start again once a stream has served for as long as the longest of them,
 *   counted from its first response. What it delivers makes no difference: it may have been all that it could deliver
 *   (a quiet store), and a stream that breaks after its first response may have delivered something (a busy one).
 * - A planned end (DRAINING) is no failure: the next stream is opened at once.
 * - If another server is ready, the next stream is opened there at once; if that one fails too, after a pause.
 * - A connection that becomes ready ends the pause, and the pauses start again.
 *
 * "At once" is within 200 ms, at random.
 */
export class StreamBackoff {
  readonly #options: StreamBackoffOptions;
  readonly #backoff: Backoff;
  /** When the current stream had its first response; undefined before. */
  #servingSince: number | undefined;
  /** Whether the last pause was left out, as another server was ready. */
  #hasMoved = false;

  constructor(options: StreamBackoffOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.bounds, options.random);
  }

  /** The current stream has sent a response. To be called for the first one at least. */
  responded(): void {
    this.#servingSince ??= this.#options.clock.now();
  }

  /**
   * The current stream has ended, or could not be opened. Returns the pause before the next one: at least `leastMs`,
   * which the server asked for, unless the end was planned. Both are in milliseconds.
   */
  next(error: unknown, leastMs: number): number {
    const { bounds, clock, reachability } = this.#options;
    const servedMs = this.#servingSince === undefined ? 0 : clock.now() - this.#servingSince;
    this.#servingSince = undefined;
    if (servedMs >= bounds.maxMs) this.#startAgain();
    if (servedMs >= plannedAfterMs && isPlannedEnd(error)) return this.#spread();
    const pauseMs = this.#backoff.next();
    this.#hasMoved = !this.#hasMoved && reachability?.hasAlternative === true;
    return Math.max(leastMs, this.#hasMoved ? Math.min(pauseMs, this.#spread()) : pauseMs);
  }

  /**
   * Resolves after `pauseMs`, or earlier if a connection becomes ready, but not before `leastMs`; immediately when a
   * signal is aborted. Both are in milliseconds.
   */
  async wait(
    pauseMs: number,
    leastMs: number,
    ...signals: readonly (AbortSignal | undefined)[]
  ): Promise<void> {
    const { clock, reachability } = this.#options;
    const start = clock.now();
    const ready = new AbortController();
    const leave = reachability?.onReady(() => ready.abort());
    await pause(clock, pauseMs, ...signals, ready.signal);
    leave?.();
    if (!ready.signal.aborted) return;
    this.#startAgain();
    const passedMs = clock.now() - start;
    const leftMs = Math.min(pauseMs - passedMs, Math.max(leastMs - passedMs, this.#spread()));
    await pause(clock, Math.max(0, leftMs), ...signals);
  }

  #startAgain(): void {
    this.#backoff.reset();
    this.#hasMoved = false;
  }

  #spread(): number {
    return spreadMs * this.#options.random();
  }
}

/** Whether the server ended the stream as planned: it shuts down, or the stream has reached its maximum age. */
function isPlannedEnd(error: unknown): boolean {
  // A relay reports it as the cause.
  return (
    hasReason(error, "DRAINING") || (error instanceof Error && hasReason(error.cause, "DRAINING"))
  );
}
