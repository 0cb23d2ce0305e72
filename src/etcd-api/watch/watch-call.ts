import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../../base/errors.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { leftOutKey, leftOutKeyHeader, requestHeaders } from "../../etcd/client/call-headers.ts";
import { compacted, duplicateWatch, stopped, tooMany } from "../../etcd/wire/error-texts.ts";
import { nextMessage, UnreadableMessage } from "../../etcd/wire/messages.ts";
import {
  type CreateRequest,
  readWatchRequest,
  smallestKey,
  type WatchStreamRequest,
} from "../../etcd/wire/watch-request.ts";
import { type Answer, noWatchId } from "../../etcd/wire/watch-response.ts";
import type { Access } from "../../policy/access.ts";
import { WireFault } from "../../protobuf/message-cursor.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused, tooMuchRetained } from "../../server/calls/refusals.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Reservation } from "../../server/kernel/ledger.ts";
import { statusOf } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { type CachedRange, hasCredential } from "../cached/cached-resources.ts";
import type { KeyRights } from "../rights/key-rights.ts";
import { ClientWatch } from "./client-watch.ts";
import { watchPath } from "./member-monitor.ts";
import { UpstreamWatches, type UpstreamWatchesOwner } from "./upstream-watches.ts";
import { WatchResponses } from "./watch-responses.ts";
import type { WatchService } from "./watch-service.ts";

const noKey: Buffer = Buffer.alloc(0);

/** Maximum size of a request, in bytes: etcd's default --max-request-bytes and 512 KiB. */
const maxRequestBytes = 2 * 1024 ** 2;

/** Number of answers that wait above which no request is read. */
const maxAnswers = 256;

/** Memory of a watch that waits in no buffer, in bytes, estimated, in addition to its request. */
const watchBytes = 512;

/**
 * One call of etcd's Watch, with all of its watches. Those whose range a cached resource has are served from its cache. All
 * others, and those that the cache can't serve, are watches of etcd.
 *
 * Requests are handled in their order. A request waits until it is known what may serve it, and while the ids of later watches
 * depend on etcd's answer to one before it.
 */
export class WatchCall extends WatchResponses implements UpstreamWatchesOwner {
  readonly upstream: UpstreamWatches;
  /** Whether it ends when the member has no leader. */
  readonly #needsLeader: boolean;
  /** Whether the client has a credential of etcd: etcd is asked about each watch that a cache may serve. */
  readonly #hasCredential: boolean;
  /** A key that the client leaves out of what it gets. */
  readonly #leftOut: Buffer | undefined;
  readonly #requests = new MessageReader();
  /** When the last of what has been received arrived, in the clock's milliseconds. */
  #arrivedAt = 0;
  #retained: Reservation | undefined;
  #retainedBytes = 0;
  #nextId = 0n;
  /** Whether what is needed for the next request is known: the member's header, and what may serve the watch. */
  #isKnown = false;
  /** A request that waits for etcd's answer to create requests before it. */
  #next: WatchStreamRequest | undefined;
  #isPaused = false;
  /** Of a caller that may not do everything; undefined: it may. */
  readonly #rights: KeyRights | undefined;
  /** The rights that such a caller needs for its watches. */
  readonly #accesses = new Map<ClientWatch, Access>();
  /** Whether caches may serve its watches. */
  readonly #mayCache: boolean;
  /** What an empty key of a create request is: in a namespace, also of the next tier, the key that has only its prefix. */
  readonly #emptyKey: Buffer;

  constructor(
    call: RawCall,
    metadata: IncomingHttpHeaders,
    context: ServiceContext,
    service: WatchService,
    rights?: KeyRights,
  ) {
    super(call, context, service);
    const headers = requestHeaders(watchPath, metadata);
    // The deadline of the call is checked here, and responses that are compressed could not be sent on.
    delete headers["grpc-timeout"];
    delete headers["grpc-accept-encoding"];
    const { namespace, isTier } = service.upstream;
    if (namespace !== undefined) delete headers[leftOutKeyHeader];
    this.#emptyKey = namespace === undefined && !isTier ? smallestKey : noKey;
    this.#needsLeader = headers["hasleader"] === "true";
    this.#hasCredential = hasCredential(metadata);
    this.#leftOut = leftOutKey(metadata);
    this.#rights = rights;
    this.#mayCache = service.mayServe(metadata);
    this.upstream = new UpstreamWatches(this, context.clock, headers);
  }

  override get access(): readonly Access[] | undefined {
    return this.#rights === undefined ? super.access : [...this.#accesses.values()];
  }

  override get heldBytes(): number {
    if (!this.outstanding) return 0;
    let bytes = super.heldBytes + this.#waitingBytes;
    for (const { watcher } of this.watches.values()) bytes += watcher?.heldBytes ?? 0;
    return bytes;
  }

  /** Size of etcd's responses that wait to be sent, or to arrive completely, in bytes. */
  get #waitingBytes(): number {
    return this.forwardedBytes + this.upstream.receivedBytes;
  }

  /** Begins to serve it, or ends it. */
  start(): void {
    const { retainedRequests } = this.context;
    const refusal = this.#rights?.streamRefusal;
    if (refusal !== undefined) {
      this.call.end(statusOf(refusal));
      return;
    }
    const { monitor } = this.service;
    if (!this.open()) return;
    this.service.add(this);
    this.#retained = retainedRequests.reserve(this.connection, this.call.headerBytes, () =>
      this.evict(tooMuchRetained(retainedRequests)),
    );
    const { request } = this.call;
    request.on("data", (chunk: Buffer) => {
      if (this.isOver) return;
      this.#arrivedAt = this.context.clock.now();
      this.#requests.add(chunk);
      this.#handleRequests();
    });
    // A client that half-closes the call keeps its watches.
    request.on("end", () => {});
    monitor.whenKnown(this.#needsLeader, (failure) => {
      if (this.isOver) return;
      if (failure !== undefined) {
        this.end(failure);
        return;
      }
      if (this.#needsLeader) monitor.add(this);
      this.#isKnown = true;
      this.#handleRequests();
    });
  }

  drain(): void {
    this.end(refused(status.UNAVAILABLE, stopped));
  }

  makeRoom(): void {
    this.end(refused(status.UNAVAILABLE, "too many watches are not served from a cache"));
  }

  check(): void {
    // Without a watch it needs no right that could be lost.
    const refusal = this.size === 0 ? this.#rights?.streamRefusal : undefined;
    if (refusal !== undefined) this.end(statusOf(refusal));
    if (this.isOver) return;
    if (this.#needsLeader) this.service.monitor.check();
    if (this.service.hasRefused) for (const watch of this.watches.values()) watch.leaveRefused();
    this.#handOver();
    this.upstream.check();
    this.chargeIfStuck(this.outstanding ? this.#waitingBytes : 0);
  }

  endWatch(watch: ClientWatch, answer: Answer, revision: number): void {
    watch.isOver = true;
    this.onEnded(watch);
    this.answer(answer, revision);
  }

  onCreated(watch: ClientWatch): void {
    const { watchId } = watch.request;
    watch.id = watchId === 0n ? this.#freeId() : watchId;
    if (watchId === 0n) this.#nextId = watch.id + 1n;
    this.watches.set(watch.id, watch);
  }

  onRefused(watch: ClientWatch): void {
    watch.isOver = true;
    this.#count(watch, -1);
  }

  onPermitted(watch: ClientWatch): void {
    if (this.#isTaken(watch.request)) {
      this.onRefused(watch);
      this.settle(watch, this.#refusal(duplicateWatch, watch.range));
    } else {
      this.#begin(watch);
    }
  }

  onSettled(): void {
    this.#handleRequests();
  }

  onEnded(watch: ClientWatch): void {
    this.watches.delete(watch.id);
    this.#count(watch, -1);
    watch.close();
    this.upstream.cancel(watch);
  }

  protected override onClosed(): void {
    super.onClosed();
    this.service.forget(this);
    this.#retained?.release();
    this.upstream.close();
    for (const watch of this.watches.values()) watch.close();
    this.service.watches -= this.size;
    this.size = 0;
    this.watches.clear();
    this.#accesses.clear();
    // What the client still sends is read and dropped.
    if (!this.call.request.destroyed) this.call.request.resume();
  }

  #handleRequests(): void {
    this.holdAnswers();
    try {
      while (!this.isOver && !this.#mustWait) {
        const request = this.#nextRequest();
        if (request === undefined) break;
        if (request.kind === "create") this.#confirmAndCreate(request);
        else if (request.kind === "cancel") this.#cancel(request.watchId);
        else if (request.kind === "progress") this.requestProgress();
      }
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.end(refused(status.INTERNAL, details));
    }
    this.#requests.own();
    const nextBytes = this.#next?.kind === "create" ? this.#next.encoded.length : 0;
    this.requestCharge?.resize(this.#requests.heldBytes + nextBytes);
    this.#pauseRequests(this.#mustWait || this.#next !== undefined);
    this.sendAnswers();
  }

  /** The next request; undefined: it has not arrived, or may not be handled yet. */
  #nextRequest(): WatchStreamRequest | undefined {
    let request = this.#next;
    if (request === undefined) {
      const message = nextMessage(this.#requests, maxRequestBytes);
      if (message === undefined) return undefined;
      request = readWatchRequest(message, this.#emptyKey);
    }
    const mayHandle = this.#mayHandle(request);
    this.#next = mayHandle ? undefined : request;
    return mayHandle ? request : undefined;
  }

  /**
   * Whether this request may be handled now. While etcd has not answered a create request, only such may be that etcd has to
   * answer as well: on its answer depend the ids of later watches, and which watch a request cancels.
   */
  #mayHandle(request: WatchStreamRequest): boolean {
    if (!this.upstream.isCreating) return true;
    if (request.kind !== "create" || request.watchId !== 0n || this.upstream.isAsking) return false;
    return !this.service.isCached(this.#rangeOf(request), request.startRevision);
  }

  #rangeOf(request: CreateRequest): CachedRange | undefined {
    return this.#mayCache ? this.service.rangeOf(request, this.#leftOut) : undefined;
  }

  /** Whether the next request has to wait. */
  get #mustWait(): boolean {
    return !this.#isKnown || this.waitingAnswers >= maxAnswers;
  }

  #pauseRequests(isPaused: boolean): void {
    // What a client has sent that has reset the call is dropped: it is not paused again.
    if (this.call.isOver || this.#isPaused === isPaused) return;
    this.#isPaused = isPaused;
    if (isPaused) this.call.request.pause();
    else this.call.request.resume();
  }

  /** Creates a watch once it is known whether a cache may serve it. Later requests wait. */
  #confirmAndCreate(received: CreateRequest): void {
    const { service, isFollower } = this;
    const request = isFollower ? { ...received, isFollower } : received;
    const range = this.#rangeOf(request);
    // What etcd serves is etcd's to check.
    const isCached = service.isCached(range, request.startRevision);
    const confirmed =
      range && isCached
        ? service.cached.confirmWatch(range, request, this.#hasCredential, this.#arrivedAt)
        : undefined;
    if (confirmed === undefined) {
      this.#create(request, range);
      return;
    }
    this.#isKnown = false;
    void confirmed.then((served) => {
      if (this.isOver) return;
      this.#isKnown = true;
      this.holdAnswers();
      // What is not permitted, or is compacted, is etcd's to refuse, with its own reason.
      this.#create(request, served);
      this.#handleRequests();
    });
  }

  /**
   * Creates a watch, and answers the request. `range`: the cached resource that may serve it. What etcd refuses for several
   * reasons it refuses for the first of these: a negative revision, its rights, an empty range, the id.
   */
  #create(request: CreateRequest, range: CachedRange | undefined): void {
    const access = this.#check(request);
    if (access instanceof WatchFanoutError) {
      this.addAnswer(this.#refusal(access.message, undefined));
      return;
    }
    const isCached = this.service.isCached(range, request.startRevision);
    const reason = this.#reasonToRefuse(request, isCached);
    if (this.isOver) return;
    if (reason !== undefined) {
      this.addAnswer(this.#refusal(reason, range));
      return;
    }
    const watch = new ClientWatch(this, request, range);
    if (access !== undefined) this.#accesses.set(watch, access);
    this.#count(watch, 1);
    // To make room for it, the stream itself may have been ended, as before for its place among the watches of etcd.
    if (this.isOver) return;
    this.expect(watch);
    if (this.#isTaken(request) || (isCached && this.#hasCredential)) this.upstream.ask(watch);
    else this.#begin(watch);
  }

  /** The right of a caller that may not do everything; undefined: it may. The error, if it has no right to the watch. */
  #check(request: CreateRequest): Access | WatchFanoutError | undefined {
    if (this.#rights === undefined) return undefined;
    const { key, rangeEnd, hasUnknownField } = request;
    if (hasUnknownField) return this.#rights.refuseUnread(false);
    const accesses = this.#rights.check([{ kind: "watch", key, rangeEnd }]);
    return accesses instanceof WatchFanoutError ? accesses : accesses[0];
  }

  /** Why a watch is refused without asking etcd; undefined: it is not. */
  #reasonToRefuse(request: CreateRequest, isCached: boolean): string | undefined {
    if (request.startRevision < 0) return compacted;
    if (!this.service.mayAdd(this.size)) return tooMany;
    if (!isCached) return this.service.mayAddUpstream(groupOf(this.owner)) ? undefined : tooMany;
    return this.#isTaken(request) && !this.#hasCredential ? duplicateWatch : undefined;
  }

  /** Begins to serve a watch that the client may have, and answers its create request. */
  #begin(watch: ClientWatch): void {
    const { service } = this;
    const { range, request } = watch;
    if (!service.isCached(range, request.startRevision)) {
      this.upstream.create(watch);
      return;
    }
    const current = service.currentRevision(range);
    watch.beginAfter(current);
    this.onCreated(watch);
    watch.serveFromCache();
    service.reported(current);
    this.settle(watch, this.encode({ watchId: watch.id, created: true }, current));
  }

  /** Cancels a watch, and answers the request. An unknown id has no answer, as with etcd. */
  #cancel(id: bigint): void {
    const watch = this.watches.get(id);
    if (watch === undefined) return;
    // Of a watch that begins later nothing has been sent, up to a revision that etcd does not have.
    const sent = watch.syncedRevision ?? watch.sent;
    const revision = Math.min(sent, this.service.currentRevision(watch.range));
    this.endWatch(watch, { watchId: id, canceled: true }, revision);
  }

  /** Serves watches of etcd from the cache, as soon as it has all that they have not been sent. */
  #handOver(): void {
    let isProgressNeeded = false;
    for (const watch of this.upstream) isProgressNeeded = watch.handOver() || isProgressNeeded;
    if (isProgressNeeded) this.upstream.requestProgress();
  }

  get isFollower(): boolean {
    return this.#leftOut !== undefined;
  }

  protected onRoom(): void {
    if (this.#isPaused) this.#handleRequests();
  }

  /** The id of the next watch whose client does not choose one. A watch that is refused has not used it. */
  #freeId(): bigint {
    while (this.watches.has(this.#nextId)) this.#nextId++;
    return this.#nextId;
  }

  #isTaken({ watchId }: CreateRequest): boolean {
    return watchId !== 0n && this.watches.has(watchId);
  }

  /** The answer to a create request that is refused. */
  #refusal(cancelReason: string, range: CachedRange | undefined): Buffer {
    const answer = { watchId: BigInt(noWatchId), created: true, canceled: true, cancelReason };
    return this.encode(answer, this.service.currentRevision(range));
  }

  #count(watch: ClientWatch, by: 1 | -1): void {
    const { request } = watch;
    if (by < 0) this.#accesses.delete(watch);
    this.size += by;
    this.service.watches += by;
    this.#retainedBytes += by * (watchBytes + request.encoded.length);
    this.#retained?.resize(this.call.headerBytes + this.#retainedBytes);
  }
}
