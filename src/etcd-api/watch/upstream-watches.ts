import type { OutgoingHttpHeaders } from "node:http2";
import type { Clock, Timer } from "../../base/clock.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { Fifo } from "../../base/fifo.ts";
import { ownBytes } from "../../base/growing-buffer.ts";
import { waitFor } from "../../base/wait.ts";
import { UpstreamCall } from "../../etcd/client/upstream-call.ts";
import { cancelRequest, createRequest, progressRequest } from "../../etcd/wire/watch-request.ts";
import {
  type DecodedWatch,
  decodePastWatch,
  noWatchId,
  withFields,
} from "../../etcd/wire/watch-response.ts";
import { RevisionJoiner } from "../../etcd/wire/whole-revisions.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { ClientWatch, UpstreamWatch, WatchOwner } from "./client-watch.ts";

/** Size of etcd's responses that wait above which no more are received, in bytes. */
const maxWaitingBytes = 1024 ** 2;

/** How long a stream waits for etcd's answer to a progress request, in milliseconds. */
const progressTimeoutMs = 3_000;

/** How long it waits to ask again after an answer of an older revision, in milliseconds. */
const progressRetryMs = 100;

/** `fragment`: a response of any size would be held here as a whole. */
const inFragments = Buffer.of(0x40, 1);
/** The filters NOPUT and NODELETE, and no progress notifications. */
const bothFilters = Buffer.from("280028012000", "hex");

/** Fields that make a response of a watch that exists of one to a create request. */
const notCreated = Buffer.of(0x18, 0);
const idZero = Buffer.of(0x10, 0);
const nothing = Buffer.alloc(0);

/** A response of etcd for the client. */
export interface ForwardedResponse {
  readonly watch: ClientWatch;
  readonly parts: FrameParts;
  /** Whether the next one has to follow at once. */
  readonly fragment: boolean;
  /** What has been sent of the watch with it; undefined: it is not known. */
  readonly sent: number | undefined;
  /** Whether it is the last one of its watch. */
  readonly isLast: boolean;
}

/** What the watches at etcd need of the client's stream. */
export interface UpstreamWatchesOwner extends WatchOwner {
  /** Size of etcd's responses that wait to be sent, in bytes. */
  readonly forwardedBytes: number;
  forward(response: ForwardedResponse): void;
  /** The answer to the create request of a watch is known. */
  settle(watch: ClientWatch, frame: Uint8Array): void;
  /** etcd has created a watch for a request of the client: it gets an id. */
  onCreated(watch: ClientWatch): void;
  /** etcd has refused to create it. */
  onRefused(watch: ClientWatch): void;
  /** etcd permits a watch that it was asked about. Its create request is not answered. */
  onPermitted(watch: ClientWatch): void;
  /** etcd has answered a create request: the next request of the client may be handled. */
  onSettled(): void;
  /** etcd has ended a watch. The stream forgets it. */
  onEnded(watch: ClientWatch): void;
}

/**
 * The watches of a client's stream that etcd serves, on a Watch stream of their own: with the client's metadata, so that no
 * two clients share one. Passes etcd's responses on, with the client's ids: at etcd they have ids of their own, which are never
 * used twice. A watch gets the client's id when etcd has created it: etcd may refuse it, and then the next watch has that id.
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
  readonly #stream: UpstreamWatchesOwner;
  readonly #clock: Clock;
  /** Of calls to etcd for this client. */
  readonly #headers: OutgoingHttpHeaders;
  /** Their number, among those of all streams. */
  readonly #count: Reservation;
  #call: UpstreamCall | undefined;
  readonly #watches = new Map<number, UpstreamWatch>();
  /** The create requests that are not answered, also those of watches that were cancelled since. */
  #creating = new Fifo<UpstreamWatch>();
  /** Number of create requests of the client that etcd has not answered. */
  #unanswered = 0;
  /** Of these, that of the watch that etcd is only asked about. */
  #asked: ClientWatch | undefined;
  #lastId = 0;
  #isProgressUnsent = false;
  /** Number of progress requests that were sent. */
  #requests = 0;
  /** Number of those that were answered, or are known not to be. */
  #answers = 0;
  /** Whether it had no watch at the last check. */
  #wasIdle = false;
  #onAnswered: (() => void) | undefined;
  /** Resolves what waits for progress. */
  #onProgressed: (() => void) | undefined;

  constructor(stream: UpstreamWatchesOwner, clock: Clock, headers: OutgoingHttpHeaders) {
    this.#stream = stream;
    this.#clock = clock;
    this.#headers = headers;
    const { service, owner } = stream;
    this.#count = service.upstreamWatches.reserve(groupOf(owner), 0, () => stream.makeRoom());
  }

  /** Number of watches. */
  get size(): number {
    return this.#watches.size;
  }

  /** Whether etcd has not answered a create request of the client. */
  get isCreating(): boolean {
    return this.#unanswered > 0;
  }

  /** Whether etcd has not answered if it permits a watch. */
  get isAsking(): boolean {
    return this.#asked !== undefined;
  }

  /** Memory of a response that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#call?.receivedBytes ?? 0;
  }

  *[Symbol.iterator](): Generator<ClientWatch, void, void> {
    for (const { watch } of this.#watches.values()) yield watch;
  }

  /** Creates a watch for a request of the client, which gets etcd's answer. */
  create(watch: ClientWatch): void {
    this.#unanswered++;
    this.#create(watch, watch.request.startRevision, inFragments);
  }

  /**
   * Asks etcd whether this client may have the watch, by one of the same keys that delivers nothing: etcd permits or refuses it
   * as it would the client's. If it refuses, the client gets its answer.
   */
  ask(watch: ClientWatch): void {
    this.#unanswered++;
    this.#asked = watch;
    this.#create(watch, 0, bothFilters);
  }

  /** Continues a watch that the client has, from behind what was sent. */
  resume(watch: ClientWatch): void {
    this.#create(watch, watch.sent + 1, inFragments);
  }

  /** Ends a watch at etcd: nothing is called for it any more. */
  cancel(watch: ClientWatch): void {
    const id = this.#forget(watch);
    if (id !== undefined) this.#call?.send(cancelRequest(id));
  }

  /** Called about once a second: ends the stream to etcd if it has had no watch for as long. */
  check(): void {
    const isIdle = this.#call !== undefined && this.size === 0;
    if (isIdle && this.#wasIdle) {
      this.#call?.close();
      this.#call = undefined;
    }
    this.#wasIdle = isIdle;
  }

  /**
   * Asks etcd for progress, without waiting for the answer; unless such a request still waits to be sent: etcd will read that
   * one later than now.
   */
  requestProgress(): void {
    if (this.#call === undefined || this.#isProgressUnsent) return;
    this.#isProgressUnsent = true;
    this.#requests++;
    this.#call.send(progressRequest, () => {
      this.#isProgressUnsent = false;
    });
  }

  /**
   * Asks etcd for progress, also again. Resolves when all watches that are awaited have this revision, or have not after a
   * while: etcd does not answer as long as a watch is not synced. Undefined: there are no watches.
   */
  reachProgress(floor: number): Promise<void> | undefined {
    if (this.size === 0) return undefined;
    this.requestProgress();
    const clock = this.#clock;
    let again: Timer | undefined;
    return waitFor<void>(
      (resolve) => {
        this.#onProgressed = resolve;
        this.#onAnswered = () => {
          again?.cancel();
          if (this.#hasReached(floor)) resolve();
          // The member may be behind others.
          else again = clock.setTimeout(() => this.requestProgress(), progressRetryMs);
        };
        return () => {
          this.#onProgressed = undefined;
          this.#onAnswered = undefined;
          again?.cancel();
        };
      },
      { deadline: { clock, ms: progressTimeoutMs, expire: () => {} } },
    );
  }

  /** Receives more if there is room for it. */
  mayContinue(): void {
    if (this.#stream.forwardedBytes <= maxWaitingBytes) this.#call?.resume();
  }

  /** Ends all. Idempotent. */
  close(): void {
    this.#call?.close();
    this.#unanswered = 0;
    this.#watches.clear();
    this.#count.release();
    this.#onProgressed?.();
  }

  /** Whether all awaited watches have progressed up to this revision. */
  #hasReached(floor: number): boolean {
    for (const { watch, progressed } of this.#watches.values()) {
      if (watch.isAwaited && progressed < floor) return false;
    }
    return true;
  }

  #create(watch: ClientWatch, startRevision: number, fields: Buffer): void {
    const call = this.#open();
    const id = ++this.#lastId;
    const created: UpstreamWatch = {
      ...{ watch, id, requestsBefore: this.#requests, createdAt: Infinity },
      ...{ progressed: 0, isFragmented: false, joiner: undefined },
    };
    watch.upstream = created;
    this.#watches.set(id, created);
    this.#count.resize(this.size);
    this.#creating.push(created);
    call.send(createRequest([watch.request.encoded, fields], startRevision, id));
  }

  #open(): UpstreamCall {
    if (this.#call !== undefined) return this.#call;
    this.#creating = new Fifo();
    // What an earlier stream has not answered, this one does not.
    this.#answers = this.#requests;
    this.#isProgressUnsent = false;
    const { upstream } = this.#stream.service;
    this.#call = new UpstreamCall(upstream, this.#headers, {
      onMessage: (message) => this.#onMessage(message),
      onEnd: (why) => this.#stream.end(why),
    });
    return this.#call;
  }

  #onMessage(message: Buffer): void {
    const response = decodePastWatch(message);
    if (response.created) {
      this.#onCreated(response, message);
    } else if (response.watchId === noWatchId) {
      this.#onProgress(response.revision);
    } else {
      const received = this.#watches.get(response.watchId);
      if (received === undefined) return;
      // It comes behind all answers to requests from before the watch existed.
      this.#answers = Math.max(this.#answers, received.requestsBefore);
      this.#onResponse(received, response, message);
    }
  }

  /** etcd has answered a create request. */
  #onCreated(response: DecodedWatch, message: Buffer): void {
    const created = this.#creating.shift();
    // It may have been cancelled meanwhile.
    if (created === undefined || !this.#watches.has(created.id)) return;
    const { watch } = created;
    const { canceled, revision } = response;
    created.createdAt = revision;
    if (canceled) this.#forget(watch);
    this.#stream.service.reported(revision);
    if (watch.answer === undefined) {
      // The client knows the watch already.
      const fields = Buffer.concat([notCreated, replacedId(watch)]);
      if (canceled) this.#sendLast(watch, message, fields);
      return;
    }
    this.#unanswered--;
    const isQuestion = this.#asked === watch;
    if (isQuestion) this.#asked = undefined;
    if (isQuestion && !canceled) {
      this.cancel(watch);
      this.#stream.onPermitted(watch);
    } else {
      this.#answer(watch, response, message);
    }
    this.#stream.onSettled();
  }

  /** Sends the client the answer to its create request. */
  #answer(watch: ClientWatch, { canceled, revision }: DecodedWatch, message: Buffer): void {
    if (canceled) {
      this.#stream.onRefused(watch);
    } else {
      watch.beginAfter(revision);
      this.#stream.onCreated(watch);
    }
    // A refusal has the id of no watch.
    const fields = canceled ? nothing : replacedId(watch);
    this.#stream.settle(watch, Buffer.concat(withFields(message, fields)));
  }

  #onResponse(received: UpstreamWatch, response: DecodedWatch, message: Buffer): void {
    const { watch } = received;
    const { canceled, fragment, events, revision } = response;
    const stream = this.#stream;
    const lastEvent = events.at(-1)?.kv.modRevision ?? 0;
    // Another watch-fanout gives a third one only the revision of the first event.
    stream.service.reported(Math.max(revision, lastEvent));
    if (canceled) {
      this.#forget(watch);
      this.#sendLast(watch, message, replacedId(watch));
      return;
    }
    const isJoined = !watch.request.fragment && (fragment || received.isFragmented);
    received.isFragmented = fragment;
    if (isJoined) {
      this.#forwardJoined(received, message, fragment);
    } else {
      // A response without events is progress.
      const sent = fragment ? undefined : lastEvent || revision;
      const parts = withFields(ownBytes(message), replacedId(watch));
      stream.forward({ watch, parts, fragment, sent, isLast: false });
    }
    if (stream.forwardedBytes > maxWaitingBytes) this.#call?.pause();
  }

  /** Sends what is complete with a fragment, to a client that does not ask for fragments. */
  #forwardJoined(received: UpstreamWatch, message: Buffer, isFragment: boolean): void {
    const joiner = received.joiner ?? new RevisionJoiner();
    received.joiner = isFragment ? joiner : undefined;
    const whole = joiner.add(message, isFragment);
    if (whole === undefined) return;
    const { watch } = received;
    const parts = withFields(whole.message, replacedId(watch));
    this.#stream.forward({ watch, parts, fragment: false, sent: whole.lastEvent, isLast: false });
  }

  /** Sends the response with which etcd has ended a watch. */
  #sendLast(watch: ClientWatch, message: Buffer, fields: Buffer): void {
    this.#stream.onEnded(watch);
    const parts = withFields(ownBytes(message), fields);
    this.#stream.forward({ watch, parts, fragment: false, sent: undefined, isLast: true });
  }

  /** etcd has answered a progress request: all watches that it had then were synced up to this revision. */
  #onProgress(revision: number): void {
    this.#answers++;
    for (const { requestsBefore, createdAt } of this.#watches.values()) {
      if (revision > createdAt) this.#answers = Math.max(this.#answers, requestsBefore + 1);
    }
    let isOfAll = true;
    for (const watch of this.#watches.values()) {
      if (watch.createdAt === Infinity) continue;
      if (this.#answers > watch.requestsBefore) watch.progressed = revision;
      else isOfAll = false;
    }
    // etcd answers now, so one of the next answers is of all.
    if (!isOfAll) this.requestProgress();
    this.#onAnswered?.();
  }

  /** Returns its id at etcd; undefined: it is not there. */
  #forget(watch: ClientWatch): number | undefined {
    const id = watch.upstream?.id;
    watch.upstream = undefined;
    if (id === undefined || !this.#watches.delete(id)) return undefined;
    this.#count.resize(this.size);
    return id;
  }
}

/** The field of a response that replaces etcd's id of a watch by the client's. */
function replacedId({ idField }: ClientWatch): Buffer {
  return idField.length === 0 ? idZero : idField;
}
