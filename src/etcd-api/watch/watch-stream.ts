import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { WireFault } from "../../protobuf/message-cursor.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import { outOfRequestRoom, refused } from "../../server/calls/refusals.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { Reservation } from "../../server/limits/byte-pool.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { stopped } from "../contract/error-texts.ts";
import { EtcdCall } from "../relay/etcd-call.ts";
import { requestHeaders } from "../relay/metadata.ts";
import type { ClientWatch } from "./client-watch.ts";
import { watchPath } from "./member-monitor.ts";
import { MessageSplitter, UnreadableMessage } from "./message-splitter.ts";
import { StreamSender } from "./stream-sender.ts";
import { StreamWatches } from "./stream-watches.ts";
import { type CreateRequest, readWatchRequest, type WatchStreamRequest } from "./watch-request.ts";
import { hasCredential, type WatchService } from "./watch-service.ts";

/** Maximum size of a request, in bytes: etcd's default --max-request-bytes and 512 KiB. */
const maxRequestBytes = 2 * 1024 ** 2;

/** Number of answers that wait above which no request is read. */
const maxAnswers = 256;

/**
 * One call of etcd's Watch, with all of its watches. Those whose range a cached resource has are served from its cache. All
 * others, and those that the cache can't serve, are watches of etcd.
 */
export class WatchStream extends EtcdCall {
  readonly #shared: WatchService;
  /** Whether it ends when the member has no leader. */
  readonly needsLeader: boolean;
  readonly #hasCredential: boolean;
  readonly #sender: StreamSender;
  readonly #requests = new MessageSplitter(maxRequestBytes);
  readonly #watches: StreamWatches;
  /** The charge for requests that are not complete, or not handled. */
  #received: Reservation | undefined;
  #retained: Reservation | undefined;
  #retainedBytes = 0;
  /** Whether what is needed for the next request is known: the member's header, and what may serve the watch. */
  #isKnown = false;
  /** A request that waits for etcd's answer to create requests before it. */
  #next: WatchStreamRequest | undefined;
  #isPaused = false;

  constructor(
    call: RelayedCall,
    metadata: IncomingHttpHeaders,
    context: CallContext,
    shared: WatchService,
  ) {
    super(call, context, shared.maintenance, "etcd watch");
    const headers = requestHeaders(watchPath, metadata);
    // The deadline of the call is checked here, and responses that are compressed could not be sent on.
    delete headers["grpc-timeout"];
    delete headers["grpc-accept-encoding"];
    this.#shared = shared;
    this.needsLeader = headers["hasleader"] === "true";
    this.#hasCredential = hasCredential(headers);
    this.#sender = new StreamSender(call, context, {
      framesOf: (watch) => this.#watches.framesOf(watch),
      onAnnounced: (watch) => this.#onAnnounced(watch),
      onRelayed: () => this.#watches.onRelayed(),
      onIdle: () => this.#onIdle(),
      onAccepted: () => this.chargeUnsent(0),
      onClosed: () => this.release(),
    });
    this.#watches = new StreamWatches({
      ...{ shared, headers, sender: this.#sender, clock: context.clock, owner: call.owner },
      hasCredential: this.#hasCredential,
      onCreated: () => this.#handleRequests(),
      retain: (bytes) => this.#retain(bytes),
      end: (why) => this.end(why),
    });
  }

  get sent(): number {
    return this.#sender.sent;
  }

  get outstandingMs(): number {
    return this.#sender.outstandingMs;
  }

  get heldBytes(): number {
    if (!this.#sender.outstanding) return 0;
    return this.#sender.heldBytes + this.#waitingBytes + this.#watches.heldBytes;
  }

  /** Size of etcd's responses that wait to be sent, or to arrive completely, in bytes. */
  get #waitingBytes(): number {
    return this.#sender.relayedBytes + this.#watches.receivedBytes;
  }

  /** Begins to serve it, or ends it. */
  start(): void {
    const { requestPool, retainedRequests } = this.context;
    const { maxUnreadBytesPerConnection, tooMuchRetained } = this.context;
    const { monitor } = this.#shared;
    if (!this.open()) return;
    this.#shared.add(this);
    this.#retained = retainedRequests.reserve(this.connection, this.call.headerBytes, () =>
      this.evict(tooMuchRetained()),
    );
    this.#received = requestPool.reserve(this.connection, 0, () =>
      this.end(outOfRequestRoom(maxUnreadBytesPerConnection)),
    );
    const { request } = this.call;
    request.on("data", (chunk: Buffer) => this.#onRequest(chunk));
    // A client that half-closes the call keeps its watches.
    request.on("end", () => {});
    monitor.whenKnown(this.needsLeader, (failure) => {
      if (this.isOver) return;
      if (failure !== undefined) {
        this.end(failure);
        return;
      }
      if (this.needsLeader) monitor.add(this);
      this.#isKnown = true;
      this.#handleRequests();
    });
  }

  drain(): void {
    this.end(refused(status.UNAVAILABLE, stopped));
  }

  leaderLost(why: WireStatus): void {
    this.end(why);
  }

  check(): void {
    if (this.needsLeader) this.#shared.monitor.check();
    this.#watches.check();
    this.chargeIfStuck(this.#sender.outstanding, this.sent, this.#waitingBytes);
  }

  /** Sends the progress of each watch that asked for it and is synced, unless it has sent events since the last call. */
  notifyProgress(floor: number): void {
    this.#watches.progress.notify(floor);
  }

  protected onReleased(): void {
    this.#shared.forget(this);
    this.#received?.release();
    this.#retained?.release();
    this.#sender.close();
    this.#watches.close();
    // What the client still sends is read and dropped.
    if (!this.call.request.destroyed) this.call.request.resume();
  }

  #onRequest(chunk: Buffer): void {
    if (this.isOver) return;
    this.#requests.add(chunk);
    this.#handleRequests();
  }

  #handleRequests(): void {
    try {
      while (!this.isOver && !this.#mustWait) {
        const request = this.#nextRequest();
        if (request === undefined) break;
        this.#handle(request);
      }
    } catch (error) {
      if (!(error instanceof UnreadableMessage || error instanceof WireFault)) throw error;
      const details = `grpc: failed to unmarshal the received message: ${error.message}`;
      this.end(refused(status.INTERNAL, details));
    }
    this.#requests.own();
    const nextBytes = this.#next?.kind === "create" ? this.#next.encoded.length : 0;
    this.#received?.resize(this.#requests.heldBytes + nextBytes);
    this.#pauseRequests(this.#mustWait || this.#next !== undefined);
  }

  /** The next request; undefined: it has not arrived, or may not be handled yet. */
  #nextRequest(): WatchStreamRequest | undefined {
    let request = this.#next;
    if (request === undefined) {
      const message = this.#requests.next();
      if (message === undefined) return undefined;
      request = readWatchRequest(message);
    }
    const mayHandle = this.#watches.mayHandle(request);
    this.#next = mayHandle ? undefined : request;
    return mayHandle ? request : undefined;
  }

  /** Whether the next request has to wait. */
  get #mustWait(): boolean {
    return !this.#isKnown || this.#sender.answers >= maxAnswers;
  }

  #pauseRequests(isPaused: boolean): void {
    if (this.isOver || this.#isPaused === isPaused) return;
    this.#isPaused = isPaused;
    if (isPaused) this.call.request.pause();
    else this.call.request.resume();
  }

  #handle(request: WatchStreamRequest): void {
    if (request.kind === "create") this.#confirmAndCreate(request);
    else if (request.kind === "cancel") this.#watches.cancel(request.watchId);
    else if (request.kind === "progress") this.#watches.progress.request();
  }

  /** Creates a watch once it is known whether a cache may serve it. Later requests wait. */
  #confirmAndCreate(request: CreateRequest): void {
    const range = this.#shared.rangeOf(request);
    // What etcd serves is etcd's to check.
    const isCached = this.#shared.isCached(range, request.startRevision);
    const confirmed =
      range && isCached ? this.#shared.confirm(range, request, this.#hasCredential) : undefined;
    if (confirmed === undefined) {
      this.#watches.create(request, range);
      return;
    }
    this.#isKnown = false;
    void confirmed.then((served) => {
      if (this.isOver) return;
      this.#isKnown = true;
      // What is not permitted, or is compacted, is etcd's to refuse, with its own reason.
      this.#watches.create(request, served);
      this.#handleRequests();
    });
  }

  #onAnnounced(watch: ClientWatch): void {
    this.#sender.ready(watch);
    if (this.#isPaused) this.#handleRequests();
  }

  #onIdle(): void {
    if (this.#isPaused) this.#handleRequests();
    this.#watches.progress.onIdle();
  }

  #retain(bytes: number): void {
    this.#retainedBytes += bytes;
    this.#retained?.resize(this.call.headerBytes + this.#retainedBytes);
  }
}
