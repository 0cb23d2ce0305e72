import type { Clock } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { StreamBackoff } from "../../base/stream-backoff.ts";
import { abortable } from "../../base/wait.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchMethods } from "../../wire/methods.ts";
import { CallFailure, ClosedError, isUnimplemented } from "../calls/call-failure.ts";
import type { Connection } from "../calls/connection.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import { withRequest } from "../transport/transport.ts";
import { watchBackoff } from "../watch/resuming-watch.ts";
import { regrouped, SharedStream } from "./shared-stream.ts";
import type { Credit } from "./stream-watch.ts";
import type { SubscribedWatch } from "./subscription-progress.ts";

/** How long watches have streams of their own once they can't share one, in milliseconds. */
const separateMs = 600_000;

/**
 * Size of a request above which its watch gets a stream of its own: a server ends the whole stream for one that is too
 * large.
 */
const maxSharedRequestBytes = 64 * 1024;

interface SharedStreamsOptions {
  readonly connection: Connection;
  readonly clock: Clock;
  /** Numbers from 0 to below 1, for jitter. */
  readonly random: () => number;
  /** Ends the streams when it is aborted. */
  readonly closing: AbortSignal;
  readonly logger: Pick<Logger, "warn">;
  readonly credit: Credit;
  /** Maximum number of watches of one stream. */
  readonly maxWatches: number;
}

/**
 * Maximum number of streams to which no watch can be added any more, as in a browser. A browser has at most six connections of
 * HTTP/1.1, and 256 streams on one of HTTP/2. Before the next one their watches continue together.
 */
const maxFixedStreams = 3;

/**
 * The Subscribe streams of a Subscription: as few as its watches need, one after another with the pauses of a single watch,
 * however many watches wait for them. Without Subscribe, each watch has a stream of its own.
 */
export class SharedStreams {
  readonly #options: SharedStreamsOptions;
  readonly #streams = new Set<SharedStream>();
  readonly #backoff: StreamBackoff;
  /** Resolves when the next stream may be opened. */
  #pause: Promise<void> | undefined;
  /** Of one stream, as far as the servers allow it. */
  #maxWatches: number;
  #separateUntil = Number.NEGATIVE_INFINITY;
  #hasWarned = false;

  constructor(options: SharedStreamsOptions) {
    this.#options = options;
    this.#maxWatches = options.maxWatches;
    const { clock, random, connection } = options;
    const { reachability } = connection;
    this.#backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
  }

  /** The streams that are open or being opened. */
  get streams(): ReadonlySet<SharedStream> {
    return this.#streams;
  }

  /** Opens one watch: the same as `Connection.stream` with Watch. `onServer` is called before the first response. */
  async *open(
    request: WireRequest,
    signal: AbortSignal,
    onServer: (server: Endpoint) => void,
    subscribed: SubscribedWatch,
  ): AsyncGenerator<WireResponse, void, void> {
    try {
      if (this.#mayShare(request)) {
        let hasBegun = false;
        try {
          for await (const response of this.#shared(request, signal, onServer, subscribed)) {
            hasBegun = true;
            yield response;
          }
          return;
        } catch (error) {
          const failure = this.#separated(error);
          if (failure === undefined) throw error;
          if (hasBegun) throw failure;
        }
      }
      subscribed.attached(undefined);
      const { connection } = this.#options;
      yield* connection.stream(withRequest(listWatchMethods.Watch, request), signal, onServer);
    } finally {
      subscribed.detached();
    }
  }

  #mayShare(request: WireRequest): boolean {
    const { byteLength } = listWatchMethods.Watch.encode(request);
    return byteLength <= maxSharedRequestBytes && this.#options.clock.now() >= this.#separateUntil;
  }

  async *#shared(
    request: WireRequest,
    signal: AbortSignal,
    onServer: (server: Endpoint) => void,
    subscribed: SubscribedWatch,
  ): AsyncGenerator<WireResponse, void, void> {
    let next = request;
    let isOpen = false;
    const resume = ({ revision, history_id }: WireResponse): void => {
      isOpen = revision === undefined;
      if (revision === undefined) return;
      const historyId = history_id === "" ? (next.history_id ?? "") : history_id;
      next = { ...request, send_initial_events: false, after_revision: revision };
      next.history_id = historyId;
    };
    for (;;) {
      try {
        for await (const response of this.#onStream(next, signal, onServer, subscribed)) {
          resume(response);
          yield response;
        }
        return;
      } catch (error) {
        if (error !== regrouped) throw error;
        // What its consumer has of the batch would come again.
        if (isOpen)
          throw new CallFailure(upstreamUnavailable("Its stream was put together with others."));
      }
    }
  }

  /** Opens one watch on one shared stream. Throws `regrouped` if it continues with others on another one. */
  async *#onStream(
    request: WireRequest,
    signal: AbortSignal,
    onServer: (server: Endpoint) => void,
    subscribed: SubscribedWatch,
  ): AsyncGenerator<WireResponse, void, void> {
    // Nothing may come between the choice of a stream and its new watch.
    let stream = this.#withRoom;
    while (stream === undefined && this.#pause !== undefined) {
      await abortable(this.#pause, signal).catch(() => {});
      if (signal.aborted) return;
      stream = this.#withRoom;
    }
    if (this.#options.closing.aborted) {
      throw subscriptionClosed();
    }
    if (signal.aborted) return;
    stream ??= this.#begin();
    const watch = stream.add(request);
    subscribed.attached(watch);
    const leave = (): void => watch.close();
    signal.addEventListener("abort", leave);
    try {
      for (let isFirst = true; ; isFirst = false) {
        const response = await watch.next();
        if (response === undefined) return;
        if (isFirst && stream.endpoint !== undefined) onServer(stream.endpoint);
        yield response;
      }
    } finally {
      signal.removeEventListener("abort", leave);
      watch.close();
    }
  }

  get #withRoom(): SharedStream | undefined {
    for (const stream of this.#streams) {
      if (stream.isUsable && stream.size < this.#maxWatches) return stream;
    }
    return undefined;
  }

  #begin(): SharedStream {
    const { connection, clock, credit, closing } = this.#options;
    if (!connection.hasRequestStreams && this.#streams.size >= maxFixedStreams) {
      for (const fixed of this.#streams) {
        this.#streams.delete(fixed);
        fixed.regroup();
      }
    }
    const stream = new SharedStream({
      ...{ connection, clock, credit, closing },
      onResponse: () => this.#backoff.responded(),
      onFull: (maxWatches) => {
        this.#maxWatches = Math.min(this.#maxWatches, maxWatches);
      },
      onEnd: (ended, failure) => this.#ended(ended, failure),
    });
    this.#streams.add(stream);
    return stream;
  }

  #ended(stream: SharedStream, failure: unknown): void {
    this.#streams.delete(stream);
    if (!(failure instanceof CallFailure) || this.#isUnshareable(failure)) return;
    const { error, retryDelayMs } = failure;
    const delayMs = this.#backoff.next(error, retryDelayMs);
    const pause = this.#backoff.wait(delayMs, retryDelayMs, this.#options.closing).then(() => {
      if (this.#pause === pause) this.#pause = undefined;
    });
    this.#pause = pause;
  }

  #isUnshareable({ error }: CallFailure): boolean {
    return isUnimplemented(error) || hasReason(error, "VALUE_TOO_LARGE");
  }

  /**
   * Has the watches use streams of their own for a while if `error` says that they can't share one. Returns the failure for a
   * watch that has begun; undefined for any other error.
   */
  #separated(error: unknown): CallFailure | undefined {
    if (!(error instanceof CallFailure) || !this.#isUnshareable(error)) return undefined;
    const { clock, logger } = this.#options;
    this.#separateUntil = clock.now() + separateMs;
    if (!this.#hasWarned) {
      this.#hasWarned = true;
      logger.warn(
        { reason: error.error.reason },
        isUnimplemented(error.error)
          ? "the service does not have Subscribe: each watch gets a stream of its own"
          : "a message on a shared stream was too large: each watch gets a stream of its own",
      );
    }
    const text = "The watch continues on a stream of its own.";
    return new CallFailure(upstreamUnavailable(`${error.message} ${text}`, error.error));
  }
}

/** The failure of what a closed subscription is asked for. */
export function subscriptionClosed(): ClosedError {
  return new ClosedError("INVALID_REQUEST", "This subscription or its client is closed.");
}
