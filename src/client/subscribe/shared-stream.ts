import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { Condition } from "../../base/wait.ts";
import { callErrorOf, errorOf } from "../../wire/call-error.ts";
import type { SubscribeRequest } from "../../wire/generated/watchfanout/v1/SubscribeRequest.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { listWatchMethods } from "../../wire/methods.ts";
import { type Received, received, receivedOf } from "../../wire/subscription.ts";
import { CallFailure } from "../calls/call-failure.ts";
import type { Connection } from "../calls/connection.ts";
import { broken } from "../calls/decode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import { type RequestStream, withRequests } from "../transport/transport.ts";
import { type Credit, StreamWatch } from "./stream-watch.ts";

/** Subscribe, whose responses are decoded when they are taken. */
const method = { ...listWatchMethods.Subscribe, decode: receivedOf };

interface SharedStreamOptions {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly credit: Credit;
  /** Ends the stream when it is aborted. */
  readonly closing: AbortSignal;
  /** Called when something has arrived. */
  readonly onResponse: () => void;
  /** Called when the server has refused a watch because a stream may have no more of them than this. */
  readonly onFull: (maxWatches: number) => void;
  /** Called once, when it has ended, before its watches are; undefined: no watch was left. */
  readonly onEnd: (stream: SharedStream, failure: unknown) => void;
}

/** The request for progress that is in flight. */
interface Asked {
  readonly tag: number;
  isSent: boolean;
  readonly answer: PromiseWithResolvers<number | undefined>;
}

/** How long a stream waits for further watches that it begins with, if none can be added later, in milliseconds. */
const gatherMs = 10;

/** How much may wait for the consumers of all watches of such a stream, in bytes, before it is not read on. */
const maxUnreadBytes = 4 * 1024 ** 2;
/** After how many bytes that is checked again. */
const checkedBytes = 64 * 1024;

/** Ends the watches of a stream that continue together on another one. */
export const regrouped: unique symbol = Symbol("regrouped");

/**
 * One Subscribe stream, which ends with its last watch. Requests to add watches and to grant them credit wait here until
 * the stream takes them: at most one for each watch. What the server says of one watch goes to that one.
 *
 * A browser sends all requests as the stream begins (`Platform.hasRequestStreams`). Its watches have no bound of their own then:
 * all of them wait while the consumers of some have much to take.
 */
export class SharedStream {
  /** What may wait for the consumer of each watch. */
  readonly credit: Credit;
  readonly #options: SharedStreamOptions;
  readonly #watches = new Map<number, StreamWatch>();
  /** The watches that the server was not asked for yet, in their order. */
  readonly #unsent = new Set<StreamWatch>();
  /** The credit that was not granted yet, as the server does not take it now. */
  readonly #grants = new Map<StreamWatch, Credit>();
  readonly #stopping = new AbortController();
  #requests: RequestStream<SubscribeRequest> | undefined;
  #endpoint: Endpoint | undefined;
  #incidents = 0;
  #lastId = 0;
  #lastTag = 0;
  #asked: Asked | undefined;
  /** Notified when a consumer has taken something, of a stream without credit. */
  readonly #taken = new Condition();
  /** Whether further watches get another stream. */
  #isRetired = false;

  constructor(options: SharedStreamOptions) {
    this.#options = options;
    const unlimited = { messages: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY };
    this.credit = options.connection.hasRequestStreams ? options.credit : unlimited;
  }

  /** The server; undefined before the call has begun. */
  get endpoint(): Endpoint | undefined {
    return this.#endpoint;
  }

  /** Number of watches. */
  get size(): number {
    return this.#watches.size;
  }

  /** Whether it has not ended, and takes further watches. */
  get isUsable(): boolean {
    return !this.#isRetired && !this.#stopping.signal.aborted;
  }

  /** Adds a watch. The first one opens the stream. */
  add(request: WireRequest): StreamWatch {
    const watch = new StreamWatch(++this.#lastId, request, this);
    this.#watches.set(watch.id, watch);
    this.#unsent.add(watch);
    if (watch.id === 1) void this.#run();
    this.#flush();
    return watch;
  }

  /**
   * Resolves to a revision up to which all watches have delivered everything, once their consumers are done with it;
   * undefined: the stream has ended before, or its watches have. Rejects with why the server does not know it. Not before
   * the call before has settled.
   */
  progress(): Promise<number | undefined> {
    if (this.#isFixed) {
      const why =
        "A browser can't ask a stream how far its watches are. All have delivered up to the lowest revision of their last batches, which bookmarks advance: use that.";
      return Promise.reject(invalidRequest("progress", why));
    }
    const answer = Promise.withResolvers<number | undefined>();
    if (this.#stopping.signal.aborted) return Promise.resolve(undefined);
    this.#asked = { tag: ++this.#lastTag, isSent: false, answer };
    this.#flush();
    return answer.promise;
  }

  grant(watch: StreamWatch, { messages, bytes }: Credit): void {
    if (this.#isFixed) {
      this.#taken.notify();
      return;
    }
    const before = this.#grants.get(watch) ?? { messages: 0, bytes: 0 };
    const sum = { messages: before.messages + messages, bytes: before.bytes + bytes };
    this.#grants.set(watch, sum);
    this.#flush();
  }

  over(watch: StreamWatch): void {
    this.#grants.delete(watch);
    // Otherwise the server has ended it.
    if (this.#watches.delete(watch.id) && !this.#unsent.delete(watch)) {
      this.#requests?.write({ remove: { id: watch.id } });
    }
    this.#taken.notify();
    if (this.#watches.size === 0) this.#stopping.abort();
  }

  /** Ends it so that its watches continue together with others on another stream. */
  regroup(): void {
    this.#isRetired = true;
    const watches = [...this.#watches.values()];
    this.#unsent.clear();
    this.#watches.clear();
    for (const watch of watches) watch.end(regrouped);
    this.#stopping.abort();
  }

  get #isFixed(): boolean {
    return !this.#options.connection.hasRequestStreams;
  }

  /** Resolves when the consumers have taken enough of what has arrived. */
  async #untilTaken(): Promise<void> {
    const isTaken = (): boolean => {
      let bytes = 0;
      for (const { unreadBytes } of this.#watches.values()) bytes += unreadBytes;
      return bytes <= maxUnreadBytes;
    };
    if (!isTaken())
      await this.#taken.until(isTaken, { signal: this.#stopping.signal }).catch(() => {});
  }

  async #run(): Promise<void> {
    const { connection, clock, closing, onResponse } = this.#options;
    const stop = (): void => this.#stopping.abort();
    closing.addEventListener("abort", stop);
    let failure: unknown;
    let unchecked = 0;
    try {
      if (this.#isFixed) await pause(clock, gatherMs, this.#stopping.signal);
      const responses = connection.stream(
        withRequests(method, (requests) => this.#begin(requests)),
        this.#stopping.signal,
        (endpoint) => {
          this.#endpoint = endpoint;
          this.#incidents = endpoint.incidents;
        },
      );
      for await (const response of responses) {
        onResponse();
        this.#dispatch(response);
        unchecked += response.content.byteLength;
        if (!this.#isFixed || unchecked < checkedBytes) continue;
        unchecked = 0;
        await this.#untilTaken();
      }
    } catch (error) {
      failure = hasReason(error, "INTERNAL") ? this.#violated(error) : error;
    }
    closing.removeEventListener("abort", stop);
    this.#stopping.abort();
    this.#requests = undefined;
    this.#options.onEnd(this, failure);
    this.#unsent.clear();
    const watches = [...this.#watches.values()];
    this.#watches.clear();
    for (const watch of watches) watch.end(failure);
    this.#asked?.answer.resolve(undefined);
  }

  #begin(requests: RequestStream<SubscribeRequest>): void {
    this.#requests = requests;
    requests.on("drain", () => this.#flush());
    this.#flush();
    this.#isRetired ||= this.#isFixed;
  }

  /** Sends what waits, as far as the stream takes it. */
  #flush(): void {
    const requests = this.#requests;
    if (requests === undefined) return;
    for (const [watch, grant] of this.#grants) {
      if (requests.writableNeedDrain) return;
      this.#grants.delete(watch);
      requests.write({ grant: { id: watch.id, ...grant } });
    }
    const { messages, bytes } = this.credit;
    for (const watch of this.#unsent) {
      if (requests.writableNeedDrain) return;
      this.#unsent.delete(watch);
      const add = { id: watch.id, watch: watch.request };
      requests.write({ add: this.#isFixed ? add : { ...add, messages, bytes } });
    }
    if (this.#asked === undefined || this.#asked.isSent) return;
    this.#asked.isSent = true;
    requests.write({ progress: { id: 0, tag: this.#asked.tag } });
  }

  #dispatch({ id, kind, content, progress }: Received): void {
    const watch = this.#watches.get(id);
    if (kind === received.watch) watch?.push(content);
    else if (progress !== undefined) this.#progressed(progress);
    else if (kind === received.ended || (kind === received.refused && id !== 0)) {
      // A watch that has left the stream may still be named.
      if (watch !== undefined) this.#ended(watch, content);
    } else if (kind === received.refused) this.#notProgressed(content);
  }

  #ended(watch: StreamWatch, status: Uint8Array): void {
    this.#watches.delete(watch.id);
    const refusal = this.#aboveMaximum(status);
    if (refusal !== undefined) {
      watch.end(refusal);
      return;
    }
    const failure =
      status.byteLength === 0
        ? new CallFailure(broken("the end of a watch that was not removed"))
        : this.#failureOf(status);
    this.#isRetired ||= this.#isRetiredBy(failure);
    watch.end(failure);
  }

  /** The refusal of a watch above the maximum of a stream: no failure of the server, which takes it on another one. */
  #aboveMaximum(status: Uint8Array): CallFailure | undefined {
    const error = errorOf(callErrorOf(status));
    const { limit_name: name, limit } = error.metadata;
    const maxWatches = Number(limit);
    if (name !== "max-subscribe-watches" || !(maxWatches >= 1)) return undefined;
    this.#options.onFull(maxWatches);
    return new CallFailure(error);
  }

  #progressed({ revision, tag }: NonNullable<Received["progress"]>): void {
    const asked = this.#asked;
    if (asked === undefined || tag !== asked.tag) return;
    this.#asked = undefined;
    let left = this.#watches.size;
    const taken = (): void => {
      left--;
      if (left === 0) asked.answer.resolve(revision);
    };
    if (left === 0) asked.answer.resolve(revision);
    for (const watch of this.#watches.values()) watch.whenTaken(taken);
  }

  /** A request without an id was refused. That is the one for progress, as all others have ids. */
  #notProgressed(status: Uint8Array): void {
    const { error } = this.#failureOf(status);
    const asked = this.#asked;
    if (asked === undefined) throw broken(`the refusal of no request: ${error.message}`);
    this.#asked = undefined;
    // Its watches have ended meanwhile.
    if (hasReason(error, "UNKNOWN_WATCH")) asked.answer.resolve(undefined);
    else asked.answer.reject(error);
  }

  /**
   * A stream that drains takes no watch, one has the credential that it was opened with, and others may be at other
   * servers.
   */
  #isRetiredBy({ error, elsewhere }: CallFailure): boolean {
    return (
      hasReason(error, "DRAINING") ||
      hasReason(error, "UNAUTHENTICATED") ||
      (elsewhere && this.#options.connection.hasSeveral)
    );
  }

  #failureOf(status: Uint8Array): CallFailure {
    const endpoint = this.#endpoint as Endpoint;
    const error = callErrorOf(status);
    return this.#options.connection.streamFailure(endpoint, this.#incidents, error);
  }

  /** The server violates the contract. Counted once, and not for each watch. */
  #violated(error: WatchFanoutError): CallFailure {
    this.#endpoint?.failed(this.#incidents, 0);
    return new CallFailure(error);
  }
}
