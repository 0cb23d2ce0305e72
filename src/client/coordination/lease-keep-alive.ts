import type { Clock, Timer } from "../../base/clock.ts";
import { toError, upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import { type Reachability, StreamBackoff } from "../../base/stream-backoff.ts";
import { abortable } from "../../base/wait.ts";
import { errorOfStatus } from "../../wire/call-error.ts";
import type { KeepAliveRequest } from "../../wire/generated/watchfanout/v1/KeepAliveRequest.ts";
import type { KeepAliveResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/KeepAliveResponse.ts";
import type { Renewal__Output as WireRenewal } from "../../wire/generated/watchfanout/v1/Renewal.ts";
import { CallFailure, ClosedError } from "../calls/call-failure.ts";
import { broken, decodeDuration } from "../calls/decode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { RequestStream } from "../transport/transport.ts";

/** Opens a KeepAlive call, as `Connection.stream` does. `onBegun` gets its requests, before the first response. */
export type OpenKeepAlive = (
  onBegun: (requests: Pick<RequestStream<KeepAliveRequest>, "write">) => void,
  signal: AbortSignal,
  onServer: (server: Pick<Endpoint, "failed" | "incidents">) => void,
) => AsyncIterable<WireResponse>;

interface LeaseKeepAliveOptions {
  readonly open: OpenKeepAlive;
  /** See Platform. Without it, a stream has the requests that are there as it begins, and ends when they are answered. */
  readonly hasRequestStreams: boolean;
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
  readonly reachability?: Reachability | undefined;
  /** Aborted when the client is closed. */
  readonly closing: AbortSignal;
}

/** The outcome of a request that was answered. */
export interface Renewed {
  /** The time just before the request was sent, by the clock. The leases were renewed later. */
  readonly sentAt: number;
  /** For each lease of the request, how long it lasts from then on at least, in milliseconds; or why it was not renewed. */
  readonly outcomes: readonly (number | WatchFanoutError)[];
}

/** A request that was not answered yet. */
interface PendingRequest {
  readonly leases: readonly bigint[];
  readonly answer: PromiseWithResolvers<Renewed>;
  /** When it was sent; undefined: it waits for the stream. */
  sentAt: number | undefined;
  timer: Timer | undefined;
}

/** Pauses between two streams. They are short: a lease that is not renewed in time is lost. */
const backoffBounds = { initialMs: 100, maxMs: 1_000 };

/**
 * The one KeepAlive stream of a client, opened at the first request. Responses are in the order of the requests. A stream
 * that breaks, or that leaves a request unanswered for too long, fails all its requests; the next one opens another stream,
 * at another server if there is one. A browser has a stream for each batch of requests, as it can't send further ones on it.
 */
export class LeaseKeepAlive {
  readonly #options: LeaseKeepAliveOptions;
  readonly #backoff: StreamBackoff;
  readonly #pending: PendingRequest[] = [];
  #requests: Pick<RequestStream<KeepAliveRequest>, "write"> | undefined;
  /** Ends the open stream. Undefined: no stream is open. */
  #stop: AbortController | undefined;
  /** Resolves when the next stream may be opened. */
  #pause: Promise<void> = Promise.resolve();
  /** Why the stream is given up, if this client decides that. */
  #givenUp: WatchFanoutError | undefined;

  constructor(options: LeaseKeepAliveOptions) {
    this.#options = options;
    const { clock, random, reachability } = options;
    this.#backoff = new StreamBackoff({ bounds: backoffBounds, clock, random, reachability });
  }

  /**
   * Renews leases once, at most 10,000. Rejects if the stream breaks, or with UPSTREAM_UNAVAILABLE without a response within
   * `timeoutMs`, which includes the time to connect.
   */
  renew(leases: readonly bigint[], timeoutMs: number): Promise<Renewed> {
    const answer = Promise.withResolvers<Renewed>();
    const pending: PendingRequest = { leases, answer, sentAt: undefined, timer: undefined };
    pending.timer = this.#options.clock.setTimeout(() => this.#giveUp(timeoutMs), timeoutMs);
    this.#pending.push(pending);
    if (this.#stop === undefined) void this.#run();
    else this.#flush();
    return answer.promise;
  }

  /** Ends the stream if no request waits for its answer. The next request opens another one. */
  endIfIdle(): void {
    if (this.#pending.length === 0) this.#stop?.abort();
  }

  async #run(): Promise<void> {
    const { open, closing, hasRequestStreams } = this.#options;
    const stop = new AbortController();
    const end = (): void => stop.abort();
    this.#stop = stop;
    closing.addEventListener("abort", end);
    if (closing.aborted) end();
    let server: { failed(incidents: number, delayMs: number): void } | undefined;
    let incidents = 0;
    let failure: unknown;
    let isAnswered = false;
    try {
      await abortable(this.#pause, stop.signal).catch(() => {});
      const responses = open(
        (requests) => {
          this.#requests = requests;
          this.#flush();
          if (!hasRequestStreams) this.#requests = undefined;
        },
        stop.signal,
        (endpoint) => {
          server = endpoint;
          incidents = endpoint.incidents;
        },
      );
      for await (const response of responses) {
        this.#backoff.responded();
        this.#answered(response);
        isAnswered = !hasRequestStreams && this.#pending[0]?.sentAt === undefined;
        if (isAnswered) break;
      }
    } catch (error) {
      failure = error;
    }
    closing.removeEventListener("abort", end);
    this.#requests = undefined;
    this.#stop = undefined;
    const givenUp = this.#givenUp;
    this.#givenUp = undefined;
    // A server that accepts requests and answers none has not ended the stream by itself.
    if (givenUp !== undefined) server?.failed(incidents, 0);
    if (isAnswered && givenUp === undefined && !closing.aborted) {
      // Requests that have come since.
      if (this.#pending.length > 0) void this.#run();
      return;
    }
    this.#ended(givenUp ?? failure);
  }

  #ended(failure: unknown): void {
    const { closing } = this.#options;
    let error: Error;
    if (closing.aborted) {
      error = new ClosedError("INVALID_REQUEST", "This client is closed.");
    } else if (failure === undefined) {
      error = upstreamUnavailable("The stream of keep-alives was ended.");
    } else {
      const { error: cause, retryDelayMs } =
        failure instanceof CallFailure ? failure : { error: toError(failure), retryDelayMs: 0 };
      error = cause;
      const delayMs = this.#backoff.next(error, retryDelayMs);
      this.#pause = this.#backoff.wait(delayMs, retryDelayMs, closing);
    }
    for (const { timer, answer } of this.#pending.splice(0)) {
      timer?.cancel();
      answer.reject(error);
    }
  }

  #flush(): void {
    const requests = this.#requests;
    if (requests === undefined) return;
    for (const pending of this.#pending) {
      if (pending.sentAt !== undefined) continue;
      pending.sentAt = this.#options.clock.now();
      requests.write({ leases: pending.leases.map(String) });
    }
  }

  #answered({ renewals }: WireResponse): void {
    const pending = this.#pending[0];
    if (pending?.sentAt === undefined) throw broken("renewals that were not asked for");
    const { leases, sentAt, timer, answer } = pending;
    if (renewals.length !== leases.length) {
      throw broken(`${renewals.length} renewals of ${leases.length} leases`);
    }
    const outcomes = renewals.map((renewal, at) => outcomeOf(renewal, leases[at] as bigint));
    this.#pending.shift();
    timer?.cancel();
    answer.resolve({ sentAt, outcomes });
  }

  #giveUp(timeoutMs: number): void {
    this.#givenUp ??= upstreamUnavailable(`Leases were not renewed within ${timeoutMs} ms.`);
    this.#stop?.abort();
  }
}

function outcomeOf(renewal: WireRenewal, lease: bigint): number | WatchFanoutError {
  if (BigInt(renewal.lease) !== lease) {
    throw broken(`the renewal of lease ${renewal.lease} in place of ${lease}`);
  }
  if (renewal.error !== null) return errorOfStatus(renewal.error);
  const ttlMs = decodeDuration(renewal.ttl);
  if (ttlMs === undefined) throw broken("a renewal without its outcome");
  return ttlMs;
}
