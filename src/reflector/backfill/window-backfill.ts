import { Backoff, defaultBackoffBounds } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import type { BackfillQueue } from "./backfill-queue.ts";
import { type ChunkSize, ChunkSizing, maxChunkBytes, type Room } from "./chunk-sizing.ts";
import { type PastEvents, readPast } from "./past-events.ts";

/**
 * How far a fill is:
 * - `filling`: it goes on;
 * - `complete`: everything asked for is there;
 * - `full`: the target has no room for what is older;
 * - `compacted`: the store has nothing older;
 * - `costly`: what is older would cost the store too much;
 * - `failed`: the store failed several times in a row;
 * - `conflicting`: what the store told does not fit what is known;
 * - `stopped`: it was stopped.
 */
export const backfillStates = [
  ...(["filling", "complete", "full", "compacted"] as const),
  ...(["costly", "failed", "conflicting", "stopped"] as const),
] as const;

export type BackfillState = (typeof backfillStates)[number];

/** What a target has taken of what was handed over. */
export interface Prepended {
  /** Everything after this revision is in the target now. */
  readonly after: number;
  /** How many events it has taken. */
  readonly events: number;
  /** Whether it has no room for anything older. */
  readonly isFull: boolean;
}

/** What a fill writes into. */
export interface BackfillTarget {
  /** What there is room for still. */
  readonly room: Room;
  /**
   * Takes what goes before all that it has, or the newest part of it. Resolves to undefined if it can't have led to
   * what the target has, which has taken nothing then. Rejects with the signal's reason.
   */
  prepend(past: PastEvents, signal: AbortSignal): Promise<Prepended | undefined>;
}

export interface BackfillOptions {
  readonly storage: Storage;
  readonly scope: Scope;
  readonly target: BackfillTarget;
  readonly clock: Clock;
  readonly random: () => number;
  /** Shared by those who fill from the same store. */
  readonly queue: BackfillQueue;
  /** Rejects if the store's history is not, or may not be, the one that is filled from. */
  readonly confirmHistory: (signal: AbortSignal) => Promise<void>;
  /** Everything after this revision is in the target. */
  readonly endRevision: number;
  /** How far back to go: everything after this revision is wanted, if it is to be had. */
  readonly startRevision: number;
}

/** How often etcd makes a pass for watches that are to be caught up, in milliseconds: one may wait as long. */
const passIntervalMs = 100;
/** How long one pass of etcd may take, in milliseconds: it takes no write meanwhile. */
const maxPassMs = 500;
/** How many passes in a row have to take longer, as an answer may be late for other reasons. */
const maxCostly = 3;
/**
 * How long etcd takes, for each event, to look up what the object was before, in milliseconds. It does so before it
 * answers, but holds nothing meanwhile.
 */
const lookUpMs = 0.005;
/** A watch reads etcd's revision, is created, and gets its answer. */
const roundTripsOfAnswer = 3;
/** The pause after each piece, in lengths of the pass: etcd holds its store a quarter of the time at most. */
const pauseShare = 3;
const minPauseMs = 20;
const maxPauseMs = 2_000;
/** How often in a row the store may fail. */
const maxFailures = 5;

/**
 * Reads a store's past, from the newest event to the oldest, in pieces: small and quick ones first, then as large
 * as one pass of etcd serves, with pauses between them. Each piece is handed over before the next one is asked
 * for, so the target soon has what was written last.
 *
 * The further back a piece is, the more it costs etcd, which reads from there to the current revision at each
 * pass and holds its store meanwhile. So the fill ends where a piece costs too much.
 */
export class WindowBackfill {
  readonly #options: BackfillOptions;
  readonly #sizing = new ChunkSizing();
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  #state: BackfillState = "filling";
  #backfilledTo: number;
  #startRevision: number;
  #isCompacted = false;
  #events = 0;
  #failures = 0;
  #costly = 0;
  #failure: WatchFanoutError | undefined;

  constructor(options: BackfillOptions) {
    this.#options = options;
    this.#backoff = new Backoff(defaultBackoffBounds, options.random);
    this.#backfilledTo = options.endRevision;
    this.#startRevision = Math.min(options.startRevision, options.endRevision);
  }

  get state(): BackfillState {
    return this.#state;
  }

  /** Everything after this revision is in the target. */
  get backfilledTo(): number {
    return this.#backfilledTo;
  }

  /** Nothing before this revision is going to be asked for. */
  get startRevision(): number {
    return this.#startRevision;
  }

  /** How many events have been handed over. */
  get events(): number {
    return this.#events;
  }

  /** Why it failed, if that is how it ended. */
  get failure(): WatchFanoutError | undefined {
    return this.#failure;
  }

  /** Fills until there is no more to fill, or it is stopped. Calls `onProgress` after each piece. */
  async run(onProgress: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (this.#state === "filling") {
      if (this.#backfilledTo <= this.#startRevision) {
        this.#end(this.#isCompacted ? "compacted" : "complete");
        break;
      }
      try {
        await this.#options.queue.run(() => this.#next(signal, onProgress));
        if (this.#failures > 0) await pause(this.#options.clock, this.#backoff.next(), signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    }
  }

  /** Nothing is handed over after this. Harmless when called twice. */
  stop(): void {
    this.#end("stopped");
    this.#stopping.abort();
  }

  async #next(signal: AbortSignal, onProgress: () => void): Promise<void> {
    const { clock, target } = this.#options;
    signal.throwIfAborted();
    const { room } = target;
    if (room.events <= 0 || room.bytes <= 0) return this.#end("full");
    const size = this.#sizing.next(this.#backfilledTo - this.#startRevision, room);
    const roundTripMs = await this.#roundTripMs(signal);
    const begun = clock.now();
    const { past, failure, firstMs } = await readPast(
      this.#options,
      startsOf(size, this.#backfilledTo, this.#startRevision),
      this.#backfilledTo,
      maxChunkBytes,
      signal,
    );
    const tookMs = clock.now() - begun;
    this.#judge(size, past, failure);
    if (past !== undefined) await this.#handOver(past, signal);
    const events = past?.events.length ?? 0;
    const otherMs = passIntervalMs + lookUpMs * events + roundTripsOfAnswer * roundTripMs;
    // At least: it may have begun at once.
    const passMs = Math.max(0, firstMs - otherMs);
    this.#costly = passMs > maxPassMs ? this.#costly + 1 : 0;
    if (this.#costly >= maxCostly) this.#end("costly");
    onProgress();
    if (this.#state !== "filling") return;
    const pauseMs = Math.max(minPauseMs, pauseShare * passMs + tookMs - firstMs);
    await pause(clock, Math.min(maxPauseMs, pauseMs), signal);
  }

  /** How long the store takes for what costs it nothing: so long is late on a machine that is busy otherwise. */
  async #roundTripMs(signal: AbortSignal): Promise<number> {
    const { clock, storage } = this.#options;
    const begun = clock.now();
    try {
      await storage.currentRevision(signal);
    } catch (error) {
      signal.throwIfAborted();
      // The watches will fail of it too.
      if (!(error instanceof WatchFanoutError)) throw error;
    }
    return clock.now() - begun;
  }

  /** What follows from how a piece came, or did not. */
  #judge(
    size: ChunkSize,
    past: PastEvents | undefined,
    failure: WatchFanoutError | undefined,
  ): void {
    const backfilledTo = past?.after ?? this.#backfilledTo;
    // More than is held of a piece, or more than the storage holds of one answer.
    const isTooLarge = failure === undefined || failure.reason === "HISTORY_LOST";
    if (isTooLarge) {
      if (past === undefined && !this.#sizing.tooLarge(size)) this.#end("full");
      return;
    }
    if (hasReason(failure, "REVISION_TOO_OLD")) {
      const oldest = Number(failure.metadata["oldest_revision"] ?? Number.NaN);
      this.#isCompacted = true;
      // What is not known to be kept is not asked for again.
      this.#startRevision =
        oldest > this.#startRevision ? Math.min(oldest, backfilledTo) : backfilledTo;
      return;
    }
    if (past === undefined) this.#failed(failure);
  }

  #failed(failure: WatchFanoutError): void {
    this.#failure = failure;
    if (++this.#failures >= maxFailures) this.#end("failed");
  }

  async #handOver(past: PastEvents, signal: AbortSignal): Promise<void> {
    const { confirmHistory, target } = this.#options;
    try {
      await confirmHistory(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof WatchFanoutError)) throw error;
      // Whoever follows the history finds out what has become of it, and stops this if it is another.
      return this.#failed(error);
    }
    const prepended = await target.prepend(past, signal);
    signal.throwIfAborted();
    if (prepended === undefined) return this.#end("conflicting");
    this.#sizing.record(past);
    this.#failures = 0;
    this.#failure = undefined;
    this.#backoff.reset();
    this.#backfilledTo = prepended.after;
    this.#events += prepended.events;
    if (prepended.isFull) this.#end("full");
  }

  #end(state: BackfillState): void {
    if (this.#state === "filling") this.#state = state;
  }
}

/** Where the watches of a piece begin that ends at `upTo`, in ascending order. */
function startsOf({ watches, revisions }: ChunkSize, upTo: number, reach: number): number[] {
  const starts: number[] = [];
  for (let after = upTo; starts.length < watches && after > reach; ) {
    after = Math.max(reach, after - revisions);
    starts.unshift(after);
  }
  return starts;
}
