import type { OutgoingHttpHeaders } from "node:http2";
import type { Clock, Timer } from "../../base/clock.ts";
import { ownBytes } from "../../base/growing-buffer.ts";
import { RevisionJoiner } from "../../etcd/wire/revision-joiner.ts";
import { type DecodedWatch, withFields } from "../../etcd/wire/watch-response.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { ClientWatch } from "./client-watch.ts";
import type { AnswerSlot, StreamSender } from "./stream-sender.ts";
import { UpstreamWatches } from "./upstream-watches.ts";
import type { WatchService } from "./watch-service.ts";

/** Size of etcd's responses that wait above which no more are received, in bytes. */
const maxWaitingBytes = 1024 ** 2;

/** How long a stream waits for etcd's answer to a progress request, in milliseconds. */
const progressTimeoutMs = 3_000;

/** How long it waits to ask again after an answer of an older revision, in milliseconds. */
const progressRetryMs = 100;

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
  /** etcd has created a watch for a request of the client. */
  readonly onCreated: (watch: ClientWatch) => void;
  /** etcd has refused to create it. */
  readonly onRefused: (watch: ClientWatch) => void;
  /** etcd permits a watch that it was asked about. The answer to its create request has this place. */
  readonly onPermitted: (watch: ClientWatch, slot: AnswerSlot) => void;
  /** The next request of the client may be handled. */
  readonly onSettled: () => void;
  /** etcd has ended a watch. The stream forgets it. */
  readonly onEnded: (watch: ClientWatch) => void;
  /** The stream to etcd has ended. */
  readonly onLost: (why: WireStatus) => void;
}

/**
 * The watches of a client's stream that etcd serves: passes etcd's responses on, with the client's ids. A watch gets
 * its id when etcd has created it: etcd may refuse it, and then the next watch has that id. etcd answers create requests in
 * order.
 */
export class RelayedWatches {
  readonly #deps: RelayedWatchesDeps;
  /** Of the watches whose client does not ask for fragments, those of which fragments were received. */
  readonly #joiners = new Map<ClientWatch, RevisionJoiner>();
  /** The watches that the client has requested, and etcd has not answered, with the places of the answers. */
  readonly #requested = new Map<ClientWatch, AnswerSlot>();
  /** Of these, the one that etcd is only asked about. */
  #asked: ClientWatch | undefined;
  #upstream: UpstreamWatches | undefined;
  #wasIdle = false;
  #onAnswered: (() => void) | undefined;
  /** Resolves what waits for progress. */
  #onProgressed: (() => void) | undefined;

  constructor(deps: RelayedWatchesDeps) {
    this.#deps = deps;
  }

  /** Number of watches. */
  get size(): number {
    return this.#upstream?.size ?? 0;
  }

  /** Whether etcd has not answered a create request of the client. */
  get isCreating(): boolean {
    return this.#requested.size > 0;
  }

  /** Whether etcd has not answered if it permits a watch. */
  get isAsking(): boolean {
    return this.#asked !== undefined;
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
    this.#requested.set(watch, slot);
    this.#begin(watch, watch.request.startRevision);
  }

  /** Asks etcd whether this client may have the watch. If not, the client gets etcd's answer, in this place. */
  ask(watch: ClientWatch, slot: AnswerSlot): void {
    this.#requested.set(watch, slot);
    this.#asked = watch;
    this.#open().createSilent(watch);
  }

  /** Called about once a second: ends the stream to etcd if it has had no watch for as long. */
  check(): void {
    const isIdle = this.#upstream !== undefined && this.size === 0;
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

  /** Ends a watch at etcd. */
  cancel(watch: ClientWatch): void {
    this.#joiners.delete(watch);
    this.#upstream?.cancel(watch);
  }

  /** Asks etcd for progress, without waiting for the answer. */
  requestProgress(): void {
    this.#upstream?.requestProgress();
  }

  /**
   * Asks etcd for progress, also again. Resolves when all watches that are awaited have this revision, or have not after a
   * while: etcd does not answer as long as a watch is not synced. Undefined: there are no watches.
   */
  reachProgress(floor: number): Promise<void> | undefined {
    if (this.size === 0) return undefined;
    this.requestProgress();
    const { clock } = this.#deps;
    return new Promise((resolve) => {
      let again: Timer | undefined;
      const done = (): void => {
        this.#onAnswered = undefined;
        this.#onProgressed = undefined;
        timer.cancel();
        again?.cancel();
        resolve();
      };
      const timer = clock.setTimeout(done, progressTimeoutMs);
      this.#onProgressed = done;
      this.#onAnswered = () => {
        if (this.#hasReached(floor)) {
          done();
          return;
        }
        // The member may be behind others.
        again?.cancel();
        again = clock.setTimeout(() => this.requestProgress(), progressRetryMs);
      };
    });
  }

  /** Whether all awaited watches have progressed up to this revision. */
  #hasReached(floor: number): boolean {
    for (const { isAwaited, progressed } of this) {
      if (isAwaited && progressed < floor) return false;
    }
    return true;
  }

  /** Receives more if there is room for it. */
  mayContinue(): void {
    if (this.#deps.sender.relayedBytes <= maxWaitingBytes) this.#upstream?.resume();
  }

  /** Ends all. Idempotent. */
  close(): void {
    this.#joiners.clear();
    this.#requested.clear();
    this.#upstream?.close();
    this.#onProgressed?.();
  }

  #begin(watch: ClientWatch, startRevision: number): void {
    watch.progressed = 0;
    watch.isFragmented = false;
    this.#open().create(watch, startRevision);
  }

  #open(): UpstreamWatches {
    const { shared, headers, count, onLost } = this.#deps;
    this.#upstream ??= new UpstreamWatches(shared.upstream, headers, count, {
      onCreated: (watch, response, message) => this.#onCreated(watch, response, message),
      onResponse: (watch, response, message) => this.#onResponse(watch, response, message),
      onProgress: (watch, revision) => {
        watch.progressed = revision;
      },
      onAnswered: () => this.#onAnswered?.(),
      onEnd: onLost,
    });
    return this.#upstream;
  }

  /** etcd has answered a create request. */
  #onCreated(watch: ClientWatch, response: DecodedWatch, message: Buffer): void {
    const { canceled, revision } = response;
    this.#deps.shared.reported(revision);
    const slot = this.#requested.get(watch);
    if (slot === undefined) {
      // The client knows the watch already.
      const fields = Buffer.concat([notCreated, replacedId(watch)]);
      if (canceled) this.#sendLast(watch, message, fields);
      return;
    }
    const isQuestion = this.#asked === watch;
    if (isQuestion) this.#asked = undefined;
    this.#requested.delete(watch);
    if (isQuestion && !canceled) {
      this.#upstream?.cancel(watch);
      this.#deps.onPermitted(watch, slot);
    } else {
      this.#answer(watch, slot, response, message);
    }
    this.#deps.onSettled();
  }

  /** Sends the client the answer to its create request. */
  #answer(
    watch: ClientWatch,
    slot: AnswerSlot,
    { canceled, revision }: DecodedWatch,
    message: Buffer,
  ): void {
    if (canceled) {
      this.#deps.onRefused(watch);
    } else {
      watch.beginAfter(revision);
      this.#deps.onCreated(watch);
    }
    // A refusal has the id of no watch.
    slot.frame = Buffer.concat(withFields(message, canceled ? nothing : replacedId(watch)));
    this.#deps.sender.pump();
  }

  #onResponse(watch: ClientWatch, response: DecodedWatch, message: Buffer): void {
    const { canceled, fragment, events, revision } = response;
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
      const sent = fragment ? undefined : (events.at(-1)?.kv.modRevision ?? revision);
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
}

/** The field of a response that replaces etcd's id of a watch by the client's. */
function replacedId({ idField }: ClientWatch): Buffer {
  return idField.length === 0 ? idZero : idField;
}
