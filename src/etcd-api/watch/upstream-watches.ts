import type { OutgoingHttpHeaders } from "node:http2";
import { Fifo } from "../../base/fifo.ts";
import type { Upstream } from "../../etcd/client/upstream.ts";
import { UpstreamWatchCall } from "../../etcd/client/upstream-watch-call.ts";
import { cancelRequest, createRequest, progressRequest } from "../../etcd/wire/watch-request.ts";
import { type DecodedWatch, decodePastWatch, noWatchId } from "../../etcd/wire/watch-response.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { ClientWatch } from "./client-watch.ts";

/** What the watches at etcd need of their stream. */
export interface UpstreamWatchesListener {
  /** The answer to the create request of a watch. */
  readonly onCreated: (watch: ClientWatch, response: DecodedWatch, message: Buffer) => void;
  /** A later response of a watch. */
  readonly onResponse: (watch: ClientWatch, response: DecodedWatch, message: Buffer) => void;
  /** Everything of the watch up to this revision has been received. */
  readonly onProgress: (watch: ClientWatch, revision: number) => void;
  /** etcd has answered a progress request, after `onProgress` of each watch that the answer is progress of. */
  readonly onAnswered: () => void;
  readonly onEnd: (status: WireStatus) => void;
}

/** A watch at etcd. */
interface UpstreamWatch {
  readonly watch: ClientWatch;
  readonly id: number;
  /** Number of progress requests that were sent before its create request. */
  readonly requestsBefore: number;
  /** The revision of the answer to its create request; infinite until etcd has answered. */
  createdAt: number;
}

/** `fragment`: a response of any size would be held here as a whole. */
const inFragments = Buffer.of(0x40, 1);
/** The filters NOPUT and NODELETE, and no progress notifications. */
const bothFilters = Buffer.from("280028012000", "hex");

/**
 * The watches of a client's stream that etcd serves, on a Watch stream of their own: with the client's metadata, so that no
 * two clients share one. At etcd they have ids of their own, which are never used twice.
 *
 * etcd reads requests in order. It sends the answers to create requests in order, and events and answers to progress
 * requests in order, but it may send one kind before the other. So an answer to a progress request that comes behind
 * `created` of a watch may be to a request from before that watch existed, and says nothing of its events. And etcd answers
 * only if all watches of the stream are synced, so answers can't be matched to requests by counting alone. An answer is
 * progress of a watch
 *
 * - if its revision is above that of the watch's `created`: by then etcd had read all requests before the create request;
 * - or if more answers have come than there were requests before the create request.
 */
export class UpstreamWatches {
  readonly #call: UpstreamWatchCall;
  readonly #listener: UpstreamWatchesListener;
  readonly #count: (by: number) => void;
  readonly #watches = new Map<number, UpstreamWatch>();
  /** The create requests that are not answered, also those of watches that were cancelled since. */
  readonly #creating = new Fifo<UpstreamWatch>();
  #isProgressUnsent = false;
  /** Number of progress requests that were sent. */
  #requests = 0;
  /** Number of those that were answered, or are known not to be. */
  #answers = 0;
  #lastId = 0;

  /** `count` is called with the number of watches that are more, or less, than before. */
  constructor(
    upstream: Upstream,
    headers: OutgoingHttpHeaders,
    count: (by: number) => void,
    listener: UpstreamWatchesListener,
  ) {
    this.#count = count;
    this.#listener = listener;
    this.#call = new UpstreamWatchCall(upstream, headers, {
      onMessage: (message) => this.#onMessage(message),
      onEnd: listener.onEnd,
    });
  }

  /** Number of watches. */
  get size(): number {
    return this.#watches.size;
  }

  /** Memory of a response that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#call.receivedBytes;
  }

  *[Symbol.iterator](): Generator<ClientWatch, void, void> {
    for (const { watch } of this.#watches.values()) yield watch;
  }

  /** Creates a watch from this revision on; 0: from now on. Its responses come in fragments. */
  create(watch: ClientWatch, startRevision: number): void {
    this.#create(watch, startRevision, inFragments);
  }

  /**
   * Creates a watch of the same keys that delivers nothing, from now on: etcd permits or refuses it as it would the
   * client's.
   */
  createSilent(watch: ClientWatch): void {
    this.#create(watch, 0, bothFilters);
  }

  #create(watch: ClientWatch, startRevision: number, fields: Buffer): void {
    const id = ++this.#lastId;
    const creation = { watch, id, requestsBefore: this.#requests, createdAt: Infinity };
    watch.upstreamId = id;
    this.#watches.set(id, creation);
    this.#count(1);
    this.#creating.push(creation);
    this.#call.send(createRequest([watch.request.encoded, fields], startRevision, id));
  }

  /** Cancels a watch: nothing is called for it any more. */
  cancel(watch: ClientWatch): void {
    const id = watch.upstreamId;
    if (id === undefined) return;
    this.#forget(watch);
    this.#call.send(cancelRequest(id));
  }

  /** Asks for progress, unless such a request still waits to be sent: etcd will read that one later than now. */
  requestProgress(): void {
    if (this.#isProgressUnsent) return;
    this.#isProgressUnsent = true;
    this.#requests++;
    this.#call.send(progressRequest, () => {
      this.#isProgressUnsent = false;
    });
  }

  /** Receives nothing until `resume`. */
  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  /** Cancels all. Nothing is called any more. */
  close(): void {
    this.#call.close();
    this.#count(-this.#watches.size);
    this.#watches.clear();
  }

  #onMessage(message: Buffer): void {
    const response = decodePastWatch(message);
    if (response.created) {
      this.#onCreated(response, message);
    } else if (response.watchId === noWatchId) {
      this.#onProgress(response.revision);
    } else {
      const upstream = this.#watches.get(response.watchId);
      if (upstream === undefined) return;
      const { watch, requestsBefore } = upstream;
      // It comes behind all answers to requests from before the watch existed.
      this.#answers = Math.max(this.#answers, requestsBefore);
      if (response.canceled) this.#forget(watch);
      this.#listener.onResponse(watch, response, message);
    }
  }

  #onCreated(response: DecodedWatch, message: Buffer): void {
    const upstream = this.#creating.shift();
    // It may have been cancelled meanwhile.
    if (upstream === undefined || !this.#watches.has(upstream.id)) return;
    upstream.createdAt = response.revision;
    if (response.canceled) this.#forget(upstream.watch);
    this.#listener.onCreated(upstream.watch, response, message);
  }

  /** etcd has answered a progress request: all watches that it had then were synced up to this revision. */
  #onProgress(revision: number): void {
    this.#answers++;
    for (const { requestsBefore, createdAt } of this.#watches.values()) {
      if (revision > createdAt) this.#answers = Math.max(this.#answers, requestsBefore + 1);
    }
    let isOfAll = true;
    for (const { watch, requestsBefore, createdAt } of this.#watches.values()) {
      if (createdAt === Infinity) continue;
      if (this.#answers > requestsBefore) this.#listener.onProgress(watch, revision);
      else isOfAll = false;
    }
    // etcd answers now, so one of the next answers is of all.
    if (!isOfAll) this.requestProgress();
    this.#listener.onAnswered();
  }

  #forget(watch: ClientWatch): void {
    const { upstreamId } = watch;
    watch.upstreamId = undefined;
    if (upstreamId !== undefined && this.#watches.delete(upstreamId)) this.#count(-1);
  }
}
