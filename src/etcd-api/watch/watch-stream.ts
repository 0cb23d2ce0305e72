import { constants, type OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { hasReason, type WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import { fullAccess } from "../../policy/full-access.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { Reservation } from "../../server/limits/byte-pool.ts";
import type { CallOwner } from "../../server/limits/callers.ts";
import type { OpenStream } from "../../server/limits/open-streams.ts";
import type { Sender } from "../../server/limits/stall-detector.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { MaintainedCall } from "../relay/call-maintenance.ts";
import { resumable, stopped } from "../relay/call-relay.ts";
import { type CachedRange, EtcdWatch } from "./etcd-watch.ts";
import { etcdFramesOf, previousUnknown } from "./event-encoding.ts";
import { MessageSplitter, UnreadableMessage } from "./message-splitter.ts";
import { type AnswerSlot, StreamSender } from "./stream-sender.ts";
import { UpstreamWatches } from "./upstream-watches.ts";
import { type CreateRequest, readWatchRequest } from "./watch-request.ts";
import {
  type Answer,
  encodeAnswer,
  noWatchId,
  type ReceivedResponse,
  withFields,
} from "./watch-response.ts";
import { isDenied, type WatchService } from "./watch-service.ts";

/** Maximum size of a request, in bytes: etcd's default --max-request-bytes and 512 KiB. */
const maxRequestBytes = 2 * 1024 ** 2;

/** Number of answers that wait above which no request is read. */
const maxAnswers = 256;

/** Size of etcd's responses that wait above which no more are received, in bytes. */
const maxRelayedBytes = 1024 ** 2;

/** Memory of a watch that waits in no buffer, in bytes, estimated, in addition to its request. */
const watchBytes = 512;

/** etcd's own texts for watches that it refuses. Its clients compare them. */
const reasons = {
  emptyRange: "mvcc: watcher range is empty",
  compacted: "etcdserver: mvcc: required revision has been compacted",
  duplicate: "mvcc: duplicate watch ID provided on the WatchStream",
  tooMany: "etcdserver: too many requests",
} as const;

/** Fields that make a response of a watch that exists of one to a create request. */
const notCreated = Buffer.of(0x18, 0);

const nothing = Buffer.alloc(0);

/**
 * One call of etcd's Watch, with all of its watches. Those whose range a cached resource has are served from its cache. All
 * others, and those that the cache can't serve, are watches of etcd.
 */
export class WatchStream implements OpenStream, Sender, MaintainedCall {
  readonly connection: object;
  readonly owner: CallOwner;
  readonly identity: Identity;
  readonly access: readonly Access[] | undefined;
  readonly #call: RelayedCall;
  /** Of calls to etcd for this client. */
  readonly #headers: OutgoingHttpHeaders;
  readonly #context: CallContext;
  readonly #shared: WatchService;
  /** Whether it ends when the member has no leader. */
  readonly needsLeader: boolean;
  readonly #sender: StreamSender;
  readonly #requests = new MessageSplitter(maxRequestBytes);
  readonly #watches = new Map<bigint, EtcdWatch>();
  /** The places of the answers to create requests that etcd has not answered. */
  readonly #creating = new Map<EtcdWatch, AnswerSlot>();
  #retained: Reservation | undefined;
  #retainedBytes = 0;
  #upstream: UpstreamWatches | undefined;
  #nextId = 0n;
  /** Whether requests may be handled: what is needed for the next one is known. */
  #isKnown = false;
  #isPaused = false;
  /** The client waits for progress: until the caches and etcd have answered, and until everything is sent. */
  #progress: "none" | "asked" | "due" = "none";
  /** Up to which revision the watches of etcd are synced, by etcd's last answer. */
  #upstreamProgress: number | undefined;
  #onUpstreamProgress: (() => void) | undefined;
  #isOver = false;

  constructor(
    call: RelayedCall,
    headers: OutgoingHttpHeaders,
    context: CallContext,
    shared: WatchService,
  ) {
    this.connection = call.connection;
    this.owner = call.owner;
    this.identity = call.identity;
    this.access = context.authorizer.hasPolicy ? fullAccess : undefined;
    this.#call = call;
    this.#headers = headers;
    this.#context = context;
    this.#shared = shared;
    this.needsLeader = headers["hasleader"] === "true";
    this.#sender = new StreamSender(call, context, {
      framesOf: (watch) => this.#framesOf(watch),
      onAnnounced: (watch) => this.#onAnnounced(watch),
      onRelayed: () => this.#upstreamMayContinue(),
      onIdle: () => this.#onIdle(),
      onCut: () => this.#cut(),
    });
  }

  get sent(): number {
    return this.#sender.sent;
  }

  get outstanding(): boolean {
    return this.#sender.outstanding;
  }

  get heldBytes(): number {
    return this.#sender.heldBytes;
  }

  /** Number of its watches that etcd serves. */
  get relayed(): number {
    return this.#upstream?.size ?? 0;
  }

  /** Number of its watches. */
  get size(): number {
    return this.#watches.size;
  }

  /** Begins to serve it, or ends it. */
  start(): void {
    const { streams, stallDetector, retainedRequests, tooMuchRetained } = this.#context;
    const { monitor } = this.#shared;
    if (this.#call.isOver) return;
    const refusal = streams.makeRoom(this.owner);
    if (refusal !== undefined) {
      this.#call.end(resumable(refusal));
      return;
    }
    streams.add(this);
    stallDetector.add(this);
    this.#shared.add(this);
    this.#call.onOver(() => this.#release());
    this.#retained = retainedRequests.reserve(this.connection, this.#call.headerBytes, () =>
      this.evict(tooMuchRetained()),
    );
    const { request } = this.#call;
    request.on("data", (chunk: Buffer) => this.#onRequest(chunk));
    // A client that half-closes the call keeps its watches.
    request.on("end", () => {});
    monitor.whenKnown(this.needsLeader, (failure) => {
      if (this.#isOver) return;
      if (failure !== undefined) {
        this.end(failure);
        return;
      }
      this.#isKnown = true;
      this.#handleRequests();
    });
  }

  /** For the bounds of open streams, and when a credential or right is lost. */
  evict(error: WatchFanoutError): void {
    this.end(resumable(error));
  }

  drain(): void {
    this.end(refused(status.UNAVAILABLE, stopped));
  }

  stalled(): void {
    this.#context.defences?.count("slow_response", this.connection);
    this.#cut();
  }

  leaderLost(why: WireStatus): void {
    this.end(why);
  }

  /** Ends the call behind what was sent. */
  end(why: WireStatus): void {
    if (this.#isOver) return;
    this.#call.end(why);
    this.#release();
  }

  check(): void {
    if (this.needsLeader) this.#shared.monitor.check();
    if (this.#shared.hasDenied) this.#relayDenied();
    if (this.#upstream !== undefined) this.#handOver(this.#upstream);
  }

  /** Sends the progress of each watch that asked for it and is synced, unless it has sent events since the last call. */
  notifyProgress(): void {
    for (const watch of this.#watches.values()) {
      if (!watch.request.progressNotify || watch.watcher === undefined) continue;
      const revision = watch.syncedRevision;
      if (!watch.isActive && revision !== undefined && revision >= this.#shared.floor) {
        this.#answer({ watchId: watch.id }, revision);
      }
      watch.isActive = false;
    }
  }

  #onRequest(chunk: Buffer): void {
    if (this.#isOver) return;
    this.#requests.add(Buffer.from(chunk));
    this.#handleRequests();
  }

  #handleRequests(): void {
    try {
      while (!this.#isOver && this.#isKnown && this.#sender.answers < maxAnswers) {
        const message = this.#requests.next();
        if (message === undefined) break;
        this.#handle(message);
      }
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      const details = `grpc: error unmarshalling request: ${error.message}`;
      this.end(refused(status.INTERNAL, details));
    }
    this.#pauseRequests(!this.#isKnown || this.#sender.answers >= maxAnswers);
  }

  #pauseRequests(isPaused: boolean): void {
    if (this.#isOver || this.#isPaused === isPaused) return;
    this.#isPaused = isPaused;
    if (isPaused) this.#call.request.pause();
    else this.#call.request.resume();
  }

  #handle(message: Buffer): void {
    const request = readWatchRequest(message);
    if (request.kind === "create") this.#confirmAndCreate(request);
    else if (request.kind === "cancel") this.#cancel(request.watchId);
    else if (request.kind === "progress") this.#requestProgress();
  }

  /** Creates a watch once it is known whether etcd permits it to clients without a token. Later requests wait. */
  #confirmAndCreate(request: CreateRequest): void {
    const range = this.#shared.rangeOf(request);
    const access = this.#shared.confirmAccess(range);
    if (access === undefined) {
      this.#create(request, range);
      return;
    }
    this.#isKnown = false;
    void access.then((isPermitted) => {
      if (this.#isOver) return;
      this.#isKnown = true;
      // What is not permitted is etcd's to refuse, with its own reason.
      this.#create(request, isPermitted ? range : undefined);
      this.#handleRequests();
    });
  }

  #create(request: CreateRequest, range: CachedRange | undefined): void {
    const shared = this.#shared;
    const current = shared.currentRevision(range);
    const refusal = this.#refusalOf(request);
    if (refusal !== undefined) {
      this.#answer(
        { watchId: noWatchId, created: true, canceled: true, cancelReason: refusal },
        current,
      );
      return;
    }
    const id = request.watchId === 0n ? this.#freeId() : request.watchId;
    const watch = new EtcdWatch(id, request, range, current);
    const isCached = shared.isCached(range, request.startRevision);
    if (!isCached && !shared.mayRelay()) {
      const cancelReason = reasons.tooMany;
      this.#answer({ watchId: noWatchId, created: true, canceled: true, cancelReason }, current);
      return;
    }
    this.#watches.set(id, watch);
    shared.counts.watches++;
    this.#retain(watchBytes + request.encoded.length);
    if (isCached) {
      this.#openCached(watch);
      this.#answer({ watchId: id, created: true }, current, watch);
    } else {
      this.#creating.set(watch, this.#sender.answer(undefined, watch));
      this.#openUpstream(watch, request.startRevision);
    }
  }

  /** Why etcd would refuse the watch; undefined: it would not. */
  #refusalOf({ key, rangeEnd, startRevision, watchId }: CreateRequest): string | undefined {
    if (startRevision < 0) return reasons.compacted;
    const isEndless = rangeEnd.length === 1 && rangeEnd[0] === 0;
    if (rangeEnd.length > 0 && !isEndless && Buffer.compare(key, rangeEnd) >= 0) {
      return reasons.emptyRange;
    }
    if (watchId !== 0n && this.#watches.has(watchId)) return reasons.duplicate;
    return this.#shared.mayAdd(this.#watches.size) ? undefined : reasons.tooMany;
  }

  #freeId(): bigint {
    while (this.#watches.has(this.#nextId)) this.#nextId++;
    return this.#nextId++;
  }

  #cancel(id: bigint): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    const slot = this.#creating.get(watch);
    // etcd has not answered yet: the watch is announced, and then is cancelled.
    if (slot !== undefined) {
      slot.frame = this.#encode({ watchId: id, created: true }, this.#shared.floor);
    }
    const revision = watch.syncedRevision ?? watch.sent;
    this.#forget(watch);
    this.#answer({ watchId: id, canceled: true }, revision);
  }

  /** Serves the watch from the cache, from behind what was sent. */
  #openCached(watch: EtcdWatch): void {
    const { range, request } = watch;
    if (range === undefined) throw new Error("A watch without a cached range can't be cached.");
    const { cacher } = range.resource;
    watch.watcher = cacher.watch({
      scope: range.scope,
      afterRevision: Math.min(watch.from - 1, cacher.revision),
      withPrevious: request.withPrevious,
      rawKeys: true,
      owner: this.owner,
    });
    watch.watcher.onReadable(() => this.#sender.ready(watch));
  }

  #openUpstream(watch: EtcdWatch, startRevision: number): void {
    this.#upstream ??= new UpstreamWatches(this.#shared, this.#headers, {
      onCreated: (...created) => this.#onCreated(...created),
      onResponse: (...response) => this.#onResponse(...response),
      onProgress: (revision) => this.#onUpstream(revision),
      onEnd: (why) => this.end(why),
    });
    this.#upstream.create(watch, startRevision);
  }

  #onAnnounced(watch: EtcdWatch): void {
    this.#sender.ready(watch);
    if (this.#isPaused) this.#handleRequests();
  }

  /** The responses for the next batch of a cached watch. */
  #framesOf(watch: EtcdWatch): readonly Uint8Array[] | undefined {
    const { watcher, range, request } = watch;
    if (watcher === undefined || range === undefined) return undefined;
    const batch = watcher.read();
    if (batch === undefined) {
      if (watcher.ended instanceof Error) this.#onEnded(watch, watcher.ended);
      return undefined;
    }
    const { prefix } = range.resource.keys;
    const frames = etcdFramesOf(batch, request, prefix, this.#shared.header, watch.from);
    if (frames === previousUnknown) {
      this.#relay(watch);
      return undefined;
    }
    const { revision = 0 } = batch;
    if (revision > watch.sent) watch.sent = revision;
    if (frames.length > 0) this.#shared.told(revision);
    return frames;
  }

  /** The cache has ended a watch. */
  #onEnded(watch: EtcdWatch, error: Error): void {
    if (hasReason(error, "DRAINING")) {
      this.drain();
    } else if (hasReason(error, "HISTORY_CHANGED")) {
      // The client's revisions are of another history: it must list, as after a compaction.
      const { cacher } = watch.range?.resource ?? {};
      this.#shared.historyChanged();
      this.#forget(watch);
      const compactRevision = Math.max(cacher?.revision ?? 0, 1);
      this.#answer({ watchId: watch.id, canceled: true, compactRevision }, 0);
    } else if (this.#shared.isCached(watch.range, watch.sent + 1)) {
      watch.from = watch.sent + 1;
      this.#openCached(watch);
    } else {
      this.#relay(watch);
    }
  }

  /** Makes etcd serve a watch, from behind what was sent. */
  #relay(watch: EtcdWatch): void {
    // Before it is closed, which notifies the sender.
    const { watcher } = watch;
    watch.watcher = undefined;
    watcher?.close();
    if (!this.#shared.mayRelay()) {
      const details = "too many watches are behind what is cached";
      this.end(refused(status.UNAVAILABLE, details));
      return;
    }
    this.#openUpstream(watch, watch.sent + 1);
  }

  /** The watches of a cache that etcd does not serve any more are etcd's to permit or to refuse. */
  #relayDenied(): void {
    for (const watch of this.#watches.values()) {
      if (watch.watcher === undefined || !watch.isAnnounced || watch.isQueued) continue;
      if (watch.range !== undefined && isDenied(watch.range.resource)) this.#relay(watch);
    }
  }

  /** Serves watches of etcd from the cache, as soon as it has all that they have not been sent. */
  #handOver(upstream: UpstreamWatches): void {
    let isProgressNeeded = false;
    for (const watch of upstream) {
      const isBusy = watch.waiting > 0 || watch.isFragmented || !watch.isAnnounced;
      if (watch.range === undefined || isBusy) continue;
      if (this.#shared.isCached(watch.range, watch.sent + 1)) {
        upstream.cancel(watch);
        watch.from = Math.max(watch.from, watch.sent + 1);
        this.#openCached(watch);
      } else if (watch.range.resource.cacher.ready) {
        isProgressNeeded = true;
      }
    }
    if (isProgressNeeded) upstream.requestProgress();
  }

  /** etcd has answered a create request. */
  #onCreated(watch: EtcdWatch, response: ReceivedResponse, message: Buffer): void {
    this.#shared.told(response.revision);
    const slot = this.#creating.get(watch);
    this.#creating.delete(watch);
    if (slot === undefined) {
      // The client knows the watch already.
      if (response.canceled)
        this.#relayLast(watch, message, Buffer.concat([notCreated, replacedId(watch)]));
      return;
    }
    if (response.canceled) {
      // With the id of a refused watch.
      watch.isOver = true;
      this.#forget(watch);
      slot.frame = Buffer.concat(withFields(message, nothing));
    } else {
      if (watch.request.startRevision === 0) {
        watch.from = response.revision + 1;
        watch.sent = response.revision;
      }
      slot.frame = Buffer.concat(withFields(message, replacedId(watch)));
    }
    this.#sender.pump();
  }

  #onResponse(watch: EtcdWatch, response: ReceivedResponse, message: Buffer): void {
    const { canceled, fragment, lastEvent, revision } = response;
    this.#shared.told(revision);
    if (canceled) {
      this.#relayLast(watch, message, replacedId(watch));
      return;
    }
    watch.isFragmented = fragment;
    if (lastEvent !== undefined) watch.isActive = true;
    // A response without events is progress.
    const sent = fragment ? undefined : (lastEvent ?? revision);
    this.#sender.relay(
      watch,
      Buffer.from(message),
      { fragment, sent, isLast: false },
      replacedId(watch),
    );
    if (this.#sender.relayedBytes > maxRelayedBytes) this.#upstream?.pause();
  }

  /** Sends the response with which etcd has ended a watch. */
  #relayLast(watch: EtcdWatch, message: Buffer, fields: Buffer): void {
    const last = { fragment: false, sent: undefined, isLast: true };
    this.#forget(watch, false);
    this.#sender.relay(watch, Buffer.from(message), last, fields);
  }

  #upstreamMayContinue(): void {
    if (this.#sender.relayedBytes <= maxRelayedBytes) this.#upstream?.resume();
  }

  #onUpstream(revision: number): void {
    this.#upstreamProgress = revision;
    for (const watch of this.#upstream ?? []) {
      if (watch.waiting === 0 && !watch.isFragmented && revision > watch.sent)
        watch.sent = revision;
    }
    this.#onUpstreamProgress?.();
  }

  /** Answers when the caches and etcd are at etcd's revision, if then all watches are synced; otherwise not at all. */
  #requestProgress(): void {
    // etcd does not answer while a watch is not synced, so it is asked whenever the client repeats its request.
    if (this.#progress === "asked" && this.#onUpstreamProgress !== undefined) {
      this.#upstream?.requestProgress();
    }
    if (this.#watches.size === 0 || this.#progress !== "none") return;
    this.#progress = "asked";
    this.#upstreamProgress = undefined;
    const reached = this.#shared.reachCurrentRevision(this.#watches.values());
    const relayed = this.relayed === 0 ? undefined : this.#reachUpstream();
    void Promise.all([reached, relayed]).then(() => {
      this.#progress = "due";
      this.#sender.pump();
    });
  }

  /** Resolves when etcd has answered a progress request, or has not for a while, as it does if a watch is not synced. */
  #reachUpstream(): Promise<void> {
    this.#upstream?.requestProgress();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#onUpstreamProgress = undefined;
        timer.cancel();
        resolve();
      };
      const timer = this.#context.clock.setTimeout(done, this.#shared.progressTimeoutMs);
      this.#onUpstreamProgress = done;
    });
  }

  #onIdle(): void {
    if (this.#isPaused) this.#handleRequests();
    if (this.#progress !== "due") return;
    this.#progress = "none";
    const revision = this.#progressRevision();
    if (revision !== undefined) this.#answer({ watchId: noWatchId }, revision);
  }

  /** The revision up to which all watches are synced; undefined: some are not. */
  #progressRevision(): number | undefined {
    let least = Infinity;
    for (const watch of this.#watches.values()) {
      const isRelayed = watch.upstreamId !== undefined && watch.isAnnounced;
      const revision = isRelayed ? this.#upstreamProgress : watch.syncedRevision;
      if (revision === undefined || !watch.isSyncedAt(revision)) return undefined;
      least = Math.min(least, revision);
    }
    return least >= this.#shared.floor && least !== Infinity ? least : undefined;
  }

  #answer(answer: Answer, revision: number, watch?: EtcdWatch): void {
    if (answer.canceled !== true) this.#shared.told(revision);
    this.#sender.answer(this.#encode(answer, revision), watch);
  }

  #encode(answer: Answer, revision: number): Buffer {
    return encodeAnswer(this.#shared.header(revision), answer);
  }

  #forget(watch: EtcdWatch, isOver: boolean = true): void {
    if (isOver) watch.isOver = true;
    this.#watches.delete(watch.id);
    this.#shared.counts.watches--;
    this.#creating.delete(watch);
    this.#upstream?.cancel(watch);
    watch.watcher?.close();
    watch.watcher = undefined;
    this.#retain(-watchBytes - watch.request.encoded.length);
  }

  #retain(bytes: number): void {
    this.#retainedBytes += bytes;
    this.#retained?.resize(this.#call.headerBytes + this.#retainedBytes);
  }

  /** Ends a call whose client accepts nothing. Clients of gRPC see it as UNAVAILABLE, after which they resume. */
  #cut(): void {
    if (this.#isOver) return;
    this.#call.resetWith(constants.NGHTTP2_REFUSED_STREAM);
    this.#release();
  }

  /** Idempotent. */
  #release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { streams, stallDetector } = this.#context;
    streams.delete(this);
    stallDetector.delete(this);
    this.#shared.forget(this);
    this.#retained?.release();
    this.#sender.close();
    this.#upstream?.close();
    for (const watch of this.#watches.values()) watch.watcher?.close();
    this.#shared.counts.watches -= this.#watches.size;
    this.#watches.clear();
    // What the client still sends is read and dropped.
    if (!this.#call.request.destroyed) this.#call.request.resume();
  }
}

/** The field of a response that replaces etcd's id of a watch by the client's. */
function replacedId({ idField }: EtcdWatch): Buffer {
  return idField.length === 0 ? idZero : idField;
}

const idZero = Buffer.of(0x10, 0);
