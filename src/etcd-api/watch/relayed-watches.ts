import type { OutgoingHttpHeaders } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { ownBytes } from "../../base/growing-buffer.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { ClientWatch } from "./client-watch.ts";
import { RevisionJoiner } from "./revision-joiner.ts";
import type { AnswerSlot, StreamSender } from "./stream-sender.ts";
import { UpstreamWatches } from "./upstream-watches.ts";
import { type ReceivedResponse, withFields } from "./watch-response.ts";
import type { WatchService } from "./watch-service.ts";

/** Size of etcd's responses that wait above which no more are received, in bytes. */
const maxWaitingBytes = 1024 ** 2;

/** How long a stream waits for etcd's answer to a progress request, in milliseconds. */
const progressTimeoutMs = 3_000;

/** Fields that make a response of a watch that exists of one to a create request. */
const notCreated = Buffer.of(0x18, 0);
const idZero = Buffer.of(0x10, 0);
const nothing = Buffer.alloc(0);

/** What the relayed watches of a stream need of it. */
export interface RelayedWatchesDeps {
  readonly shared: WatchService;
  readonly clock: Clock;
  /** Of calls to etcd for this client. */
  readonly headers: OutgoingHttpHeaders;
  readonly sender: StreamSender;
  /** Counts the watches that etcd serves: there are so many more, or less, than before. */
  readonly count: (by: number) => void;
  /** etcd permits a watch that it was asked about. The answer to its create request has this place. */
  readonly onPermitted: (watch: ClientWatch, slot: AnswerSlot) => void;
  /** etcd has answered whether it permits a watch, and that has been handled. */
  readonly onAsked: () => void;
  /** etcd has refused or ended a watch. The stream forgets it. */
  readonly onEnded: (watch: ClientWatch) => void;
  /** The stream to etcd has ended. */
  readonly onLost: (why: WireStatus) => void;
}

/**
 * The watches of a client's stream that etcd serves: passes etcd's responses on, with the client's ids, in the order of the
 * client's requests.
 */
export class RelayedWatches {
  readonly #deps: RelayedWatchesDeps;
  /** The places of the answers to create requests that etcd has not answered. */
  readonly #creating = new Map<ClientWatch, AnswerSlot>();
  /** Those of them that etcd is only asked about. */
  readonly #asking = new Set<ClientWatch>();
  /** Of the watches whose client does not ask for fragments, those of which fragments were received. */
  readonly #joiners = new Map<ClientWatch, RevisionJoiner>();
  #upstream: UpstreamWatches | undefined;
  #wasIdle = false;
  /** Up to which revision the watches are synced, by etcd's last answer. */
  #progress: number | undefined;
  #onProgress: (() => void) | undefined;

  constructor(deps: RelayedWatchesDeps) {
    this.#deps = deps;
  }

  /** Number of watches. */
  get size(): number {
    return this.#upstream?.size ?? 0;
  }

  /** The revision of etcd's last answer to a progress request since `requestProgress`; undefined: etcd has not answered. */
  get progress(): number | undefined {
    return this.#progress;
  }

  /** Memory of a response of etcd that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#upstream?.receivedBytes ?? 0;
  }

  *[Symbol.iterator](): Generator<ClientWatch, void, void> {
    if (this.#upstream !== undefined) yield* this.#upstream;
  }

  /** Creates a watch for a request of the client, which gets etcd's answer, in this place. */
  create(watch: ClientWatch, slot: AnswerSlot): void {
    this.#creating.set(watch, slot);
    this.#begin(watch, watch.request.startRevision);
  }

  /** Asks etcd whether this client may have the watch. If not, the client gets etcd's answer, in this place. */
  ask(watch: ClientWatch, slot: AnswerSlot): void {
    this.#creating.set(watch, slot);
    this.#asking.add(watch);
    this.#open().createSilent(watch);
  }

  /** Called about once a second: ends the stream to etcd if it has had no watch for as long. */
  check(): void {
    const isIdle = this.#upstream !== undefined && this.size === 0 && this.#creating.size === 0;
    if (isIdle && this.#wasIdle) {
      this.#upstream?.close();
      this.#upstream = undefined;
    }
    this.#wasIdle = isIdle;
  }

  /** Continues a watch that the client has, from behind what was sent. */
  resume(watch: ClientWatch): void {
    this.#begin(watch, watch.sent + 1);
  }

  /** Ends a watch at etcd. Returns the place of the answer to its create request if that was not answered yet. */
  cancel(watch: ClientWatch): AnswerSlot | undefined {
    const slot = this.#creating.get(watch);
    this.#creating.delete(watch);
    this.#asking.delete(watch);
    this.#joiners.delete(watch);
    this.#upstream?.cancel(watch);
    return slot;
  }

  /** Whether everything that was received of a watch has been sent, so that the cache may continue it. */
  isSettled(watch: ClientWatch): boolean {
    return watch.isAnnounced && watch.waiting === 0 && !watch.isFragmented;
  }

  /** Asks etcd for progress, without waiting for the answer. */
  requestProgress(): void {
    this.#upstream?.requestProgress();
  }

  /**
   * Asks etcd for progress. Resolves when it has answered, or has not for a while, as it does if a watch is not synced.
   */
  reachProgress(): Promise<void> | undefined {
    this.#progress = undefined;
    if (this.size === 0) return undefined;
    this.requestProgress();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#onProgress = undefined;
        timer.cancel();
        resolve();
      };
      const timer = this.#deps.clock.setTimeout(done, progressTimeoutMs);
      this.#onProgress = done;
    });
  }

  /** Receives more if there is room for it. */
  mayContinue(): void {
    if (this.#deps.sender.relayedBytes <= maxWaitingBytes) this.#upstream?.resume();
  }

  /** Ends all. Idempotent. */
  close(): void {
    this.#creating.clear();
    this.#asking.clear();
    this.#joiners.clear();
    this.#upstream?.close();
    this.#onProgress?.();
  }

  #begin(watch: ClientWatch, startRevision: number): void {
    // What etcd has answered does not include this watch.
    this.#progress = undefined;
    watch.isFragmented = false;
    this.#open().create(watch, startRevision);
  }

  #open(): UpstreamWatches {
    const { shared, headers, count, onLost } = this.#deps;
    this.#upstream ??= new UpstreamWatches(shared.upstream, headers, count, {
      onCreated: (watch, response, message) => this.#onCreated(watch, response, message),
      onResponse: (watch, response, message) => this.#onResponse(watch, response, message),
      onProgress: (revision) => this.#synced(revision),
      onEnd: onLost,
    });
    return this.#upstream;
  }

  /** etcd has answered a create request. */
  #onCreated(watch: ClientWatch, response: ReceivedResponse, message: Buffer): void {
    const { canceled, revision } = response;
    const { shared, sender } = this.#deps;
    shared.reported(revision);
    const slot = this.#creating.get(watch);
    this.#creating.delete(watch);
    if (slot === undefined) {
      // The client knows the watch already.
      const fields = Buffer.concat([notCreated, replacedId(watch)]);
      if (canceled) this.#sendLast(watch, message, fields);
      return;
    }
    const wasAsked = this.#asking.delete(watch);
    if (wasAsked && !canceled) {
      this.#upstream?.cancel(watch);
      this.#deps.onPermitted(watch, slot);
      this.#deps.onAsked();
      return;
    }
    if (canceled) {
      // With the id of a refused watch.
      watch.isOver = true;
      this.#deps.onEnded(watch);
    } else {
      watch.beginAfter(revision);
    }
    slot.frame = Buffer.concat(withFields(message, canceled ? nothing : replacedId(watch)));
    sender.pump();
    if (wasAsked) this.#deps.onAsked();
  }

  #onResponse(watch: ClientWatch, response: ReceivedResponse, message: Buffer): void {
    const { canceled, fragment, lastEvent, revision } = response;
    const { shared, sender } = this.#deps;
    shared.reported(revision);
    if (canceled) {
      this.#sendLast(watch, message, replacedId(watch));
      return;
    }
    const isJoined = !watch.request.fragment && (fragment || watch.isFragmented);
    watch.isFragmented = fragment;
    if (isJoined) {
      this.#relayJoined(watch, message, fragment);
    } else {
      // A response without events is progress.
      const sent = fragment ? undefined : (lastEvent ?? revision);
      const next = { fragment, sent, isLast: false };
      sender.relay(watch, ownBytes(message), next, replacedId(watch));
    }
    if (sender.relayedBytes > maxWaitingBytes) this.#upstream?.pause();
  }

  /** Sends what is complete with a fragment, to a client that does not ask for fragments. */
  #relayJoined(watch: ClientWatch, message: Buffer, isFragment: boolean): void {
    const joiner = this.#joiners.get(watch) ?? new RevisionJoiner();
    if (isFragment) this.#joiners.set(watch, joiner);
    else this.#joiners.delete(watch);
    const whole = joiner.add(message, isFragment);
    if (whole === undefined) return;
    const next = { fragment: false, sent: whole.lastEvent, isLast: false };
    this.#deps.sender.relay(watch, whole.message, next, replacedId(watch));
  }

  /** Sends the response with which etcd has ended a watch. */
  #sendLast(watch: ClientWatch, message: Buffer, fields: Buffer): void {
    this.#deps.onEnded(watch);
    const last = { fragment: false, sent: undefined, isLast: true };
    this.#deps.sender.relay(watch, ownBytes(message), last, fields);
  }

  /** All watches are synced up to this revision. */
  #synced(revision: number): void {
    this.#progress = revision;
    for (const watch of this) {
      if (this.isSettled(watch) && revision > watch.sent) watch.sent = revision;
    }
    this.#onProgress?.();
  }
}

/** The field of a response that replaces etcd's id of a watch by the client's. */
function replacedId({ idField }: ClientWatch): Buffer {
  return idField.length === 0 ? idZero : idField;
}
