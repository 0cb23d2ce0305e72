import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/logger.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import { abortable } from "../../base/wait.ts";
import { emitWarning } from "../../base/warning.ts";
import type { Connection } from "../calls/connection.ts";
import type { WatchOptions } from "../calls/options.ts";
import { wholeNumber } from "../informer/informer-options.ts";
import { TypedResource, type TypedResourceOptions } from "../typed/typed-resource.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { AtomicBatch, ClientCalls } from "../watch/client-calls.ts";
import type { WatchStreams } from "../watch/resuming-watch.ts";
import { SharedStreams, subscriptionClosed } from "./shared-streams.ts";
import { SubscriptionProgress } from "./subscription-progress.ts";

/** Maximum number of watches of one stream, that of the service. */
const defaultMaxWatchesPerStream = 10_000;

const defaultMaxUnreadResponses = 128;
const defaultMaxUnreadBytes = 64 * 1024;

/** Options of `Client.subscribe`. */
export interface SubscriptionOptions {
  /**
   * Maximum bytes of responses that wait for the consumer of one watch, beside the response that exceeds them. Until it
   * takes some, the server keeps what follows, as for a stream that is not read. Default 64 KiB.
   */
  readonly maxUnreadBytes?: number | undefined;
  /** Maximum number of these responses. Default 128. */
  readonly maxUnreadResponses?: number | undefined;
  /** Maximum number of watches of one stream; more of them get further streams. Default 10,000, that of the service. */
  readonly maxWatchesPerStream?: number | undefined;
  /** Logs once if the watches can't share a stream. Default: a process warning. */
  readonly logger?: Pick<Logger, "warn"> | undefined;
}

/** What a Subscription takes from its client. */
export interface SubscriptionDeps {
  readonly calls: ClientCalls;
  readonly connection: Connection;
  readonly clock: Clock;
  readonly random: () => number;
  /** `Client.watch` over these streams. */
  readonly watch: (
    streams: WatchStreams,
    resource: string,
    options: WatchOptions,
  ) => AsyncGenerator<AtomicBatch, void, void>;
}

/**
 * The calls of a client whose watches share one stream, instead of a stream each: for a program with hundreds or thousands of
 * watches. It is opened with the first watch and ends with the last.
 *
 *     const subscription = client.subscribe();
 *     for (const key of keys) void follow(subscription.watch("pods", { scope: { key }, sendInitialEvents: true }));
 *
 * Each watch is as one of `Client.watch`: it has its own options, resumes after its own last batch when the stream is lost,
 * and ends by itself. One whose consumer is slow delays no other. Leaving the loop, or aborting its signal, removes it.
 *
 * With a server that is of a version without Subscribe, each watch has a stream of its own.
 */
export class Subscription implements ClientCalls {
  readonly #deps: SubscriptionDeps;
  readonly #streams: SharedStreams;
  readonly #progress: SubscriptionProgress;
  readonly #closing = new AbortController();
  /** Aborted when this subscription or the client is closed. */
  readonly #closed: AbortSignal;

  /** Use `Client.subscribe`. Throws INVALID_REQUEST for a bound that is not a whole number of at least 1. */
  constructor(deps: SubscriptionDeps, options: SubscriptionOptions) {
    const { maxUnreadBytes, maxUnreadResponses, maxWatchesPerStream } = options;
    const bound = (name: string, value: number | undefined, usual: number): number =>
      wholeNumber(name, value, 1) ?? usual;
    this.#deps = deps;
    this.#closed = AbortSignal.any([deps.connection.closing, this.#closing.signal]);
    this.#streams = new SharedStreams({
      ...{ connection: deps.connection, clock: deps.clock, random: deps.random },
      closing: this.#closed,
      logger: options.logger ?? { warn: (_, text) => emitWarning(`watch-fanout: ${text}`) },
      credit: {
        messages: bound("maxUnreadResponses", maxUnreadResponses, defaultMaxUnreadResponses),
        bytes: bound("maxUnreadBytes", maxUnreadBytes, defaultMaxUnreadBytes),
      },
      maxWatches: bound("maxWatchesPerStream", maxWatchesPerStream, defaultMaxWatchesPerStream),
    });
    this.#progress = new SubscriptionProgress(this.#streams.streams);
  }

  /** See `Client.reachability`. */
  get reachability(): Reachability | undefined {
    return this.#deps.calls.reachability;
  }

  /** See `Client.watch`. It is part of the subscription from the first batch that is asked for until it ends. */
  async *watch(
    resource: string,
    options: WatchOptions = {},
  ): AsyncGenerator<AtomicBatch, void, void> {
    const watch = this.#progress.add();
    const streams: WatchStreams = {
      open: (request, signal, onServer) => this.#streams.open(request, signal, onServer, watch),
      closing: this.#closed,
    };
    try {
      for await (const batch of this.#deps.watch(streams, resource, options)) {
        watch.historyId = batch.historyId;
        yield batch;
      }
    } finally {
      this.#progress.delete(watch);
    }
  }

  /**
   * Resolves to a revision up to which all watches of the subscription have delivered everything: a consistent cut through
   * them. It is at least the store's revision at the time of the call. Each consumer has asked for the batch after the last
   * one before it, and so is done with that; batches with higher revisions may have been delivered as well. It is a resume
   * point of each watch.
   *
   * A watch that has lost its stream is waited for until it has resumed, and one whose consumer is slow until that is done: a
   * consumer that awaits this within its own loop waits forever. Rejects with INVALID_REQUEST if there are no watches, if they
   * are of different histories, as those of two stores, if they have streams of their own, or once this is closed; with
   * UPSTREAM_UNAVAILABLE if the server does not know it now; and with the signal's reason.
   */
  async progress({ signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<number> {
    const closed = this.#closed;
    const end = signal === undefined ? closed : AbortSignal.any([signal, closed]);
    try {
      return await abortable(this.#progress.request(), end);
    } catch (error) {
      throw closed.aborted && error === closed.reason ? subscriptionClosed() : error;
    }
  }

  /** See `Client.resource`. Its watches and informers share the stream. */
  resource<T>(
    name: string,
    codec: ValueCodec<T>,
    options: TypedResourceOptions = {},
  ): TypedResource<T> {
    const { clock = this.#deps.clock, random = this.#deps.random } = options;
    return new TypedResource(this, name, codec, { ...options, clock, random });
  }

  /** See `Client.get`. */
  readonly get: ClientCalls["get"] = (...call) => this.#deps.calls.get(...call);
  /** See `Client.batchGet`. */
  readonly batchGet: ClientCalls["batchGet"] = (...call) => this.#deps.calls.batchGet(...call);
  /** See `Client.list`. */
  readonly list: ClientCalls["list"] = (...call) => this.#deps.calls.list(...call);
  /** See `Client.page`. */
  readonly page: ClientCalls["page"] = (...call) => this.#deps.calls.page(...call);
  /** See `Client.history`. */
  readonly history: ClientCalls["history"] = (...call) => this.#deps.calls.history(...call);
  /** See `Client.historyPage`. */
  readonly historyPage: ClientCalls["historyPage"] = (...call) =>
    this.#deps.calls.historyPage(...call);
  /** See `Client.put`. */
  readonly put: ClientCalls["put"] = (...call) => this.#deps.calls.put(...call);
  /** See `Client.delete`. */
  readonly delete: ClientCalls["delete"] = (...call) => this.#deps.calls.delete(...call);
  /** See `Client.deletePrefix`. */
  readonly deletePrefix: ClientCalls["deletePrefix"] = (...call) =>
    this.#deps.calls.deletePrefix(...call);
  /** See `Client.transaction`. */
  readonly transaction: ClientCalls["transaction"] = (...call) =>
    this.#deps.calls.transaction(...call);

  /** Ends the stream: the watches fail with INVALID_REQUEST, also later ones. Does not close the client. Idempotent. */
  close(): void {
    this.#closing.abort();
  }

  /** The same as `close`, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}
