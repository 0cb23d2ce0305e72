import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { hasReason } from "../../base/errors.ts";
import { groupOf } from "../../base/rotation.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { compacted, duplicateWatch, stopped, tooMany } from "../contract/error-texts.ts";
import { type CachedRange, ClientWatch } from "./client-watch.ts";
import { etcdFramesOf, previousUnknown } from "./event-encoding.ts";
import { RelayedWatches } from "./relayed-watches.ts";
import type { AnswerSlot, StreamSender } from "./stream-sender.ts";
import { WatchProgress } from "./watch-progress.ts";
import type { CreateRequest, WatchStreamRequest } from "./watch-request.ts";
import { type Answer, encodeAnswer, noWatchId } from "./watch-response.ts";
import { isRefused, type WatchService } from "./watch-service.ts";

/** Memory of a watch that waits in no buffer, in bytes, estimated, in addition to its request. */
const watchBytes = 512;

/** What the watches of a stream need of it. */
export interface StreamWatchesDeps {
  readonly shared: WatchService;
  readonly clock: Clock;
  /** Of calls to etcd for this client. */
  readonly headers: OutgoingHttpHeaders;
  readonly sender: StreamSender;
  /** Whose time the caches' watches catch up in. */
  readonly owner: object;
  /** The requests of the watches take this number of bytes more. */
  readonly retain: (bytes: number) => void;
  /** Whether the client has a credential of etcd: etcd is asked about each watch that a cache may serve. */
  readonly hasCredential: boolean;
  /** etcd has answered a create request. */
  readonly onCreated: () => void;
  /** Ends the stream. */
  readonly end: (why: WireStatus) => void;
}

/**
 * All watches of a stream, and what serves each: a watcher of a cache, or etcd where the cache can't. A watch is handed over
 * from one to the other without a gap, as both know what has been sent.
 */
export class StreamWatches {
  readonly #deps: StreamWatchesDeps;
  readonly #watches = new Map<bigint, ClientWatch>();
  readonly #relayed: RelayedWatches;
  readonly progress: WatchProgress;
  #nextId = 0n;
  /** Number of watches, with those that etcd has not created yet. */
  #size = 0;
  #isClosed = false;

  constructor(deps: StreamWatchesDeps) {
    this.#deps = deps;
    const { shared, clock, headers, sender, end } = deps;
    const count = shared.relayed.reserve(groupOf(deps.owner), 0, () => this.#makeRoom());
    this.#relayed = new RelayedWatches({
      ...{ shared, clock, headers, sender },
      count: (by) => count.resize(count.amount + by),
      onCreated: (watch) => this.#add(watch),
      onRefused: (watch) => this.#drop(watch),
      onPermitted: (watch, slot) => this.#onPermitted(watch, slot),
      onSettled: deps.onCreated,
      onEnded: (watch) => this.#remove(watch),
      onLost: end,
    });
    this.progress = new WatchProgress({
      ...{ shared, clock, sender, watches: this.#watches, relayed: this.#relayed },
      answer: (answer, revision) => this.#answer(answer, revision),
    });
  }

  /** Memory of the batches that wait to be read, in bytes, estimated. */
  get heldBytes(): number {
    let bytes = 0;
    for (const { watcher } of this.#watches.values()) bytes += watcher?.heldBytes ?? 0;
    return bytes;
  }

  /** Memory of a response of etcd that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#relayed.receivedBytes;
  }

  /**
   * Whether this request may be handled now. While etcd has not answered a create request, only such may be that etcd has to
   * answer as well: on its answer depend the ids of later watches, and which watch a request cancels.
   */
  mayHandle(request: WatchStreamRequest): boolean {
    if (!this.#relayed.isCreating) return true;
    if (request.kind !== "create" || request.watchId !== 0n || this.#relayed.isAsking) return false;
    const { shared } = this.#deps;
    return !shared.isCached(shared.rangeOf(request), request.startRevision);
  }

  /**
   * Creates a watch, and answers the request. `range`: the cached resource that may serve it. What etcd refuses for several
   * reasons it refuses for the first of these: a negative revision, its rights, an empty range, the id.
   */
  create(request: CreateRequest, range: CachedRange | undefined): void {
    const { shared, sender, hasCredential } = this.#deps;
    const isCached = shared.isCached(range, request.startRevision);
    const refusal = this.#refusalOf(request, isCached);
    if (this.#isClosed) return;
    if (refusal !== undefined) {
      sender.answer(this.#refused(refusal, range));
      return;
    }
    const watch = new ClientWatch(request, range);
    this.#count(watch, 1);
    // To make room for it, the stream itself may have been ended, as before for its place among the watches of etcd.
    if (this.#isClosed) return;
    const slot = sender.answer(undefined, watch);
    if (this.#isTaken(request) || (isCached && hasCredential)) this.#relayed.ask(watch, slot);
    else this.#begin(watch, slot);
  }

  /** Why a watch is refused without asking etcd; undefined: it is not. */
  #refusalOf(request: CreateRequest, isCached: boolean): string | undefined {
    const { shared, hasCredential } = this.#deps;
    if (request.startRevision < 0) return compacted;
    if (!shared.mayAdd(this.#size)) return tooMany;
    if (!isCached) return shared.mayRelay(groupOf(this.#deps.owner)) ? undefined : tooMany;
    return this.#isTaken(request) && !hasCredential ? duplicateWatch : undefined;
  }

  /** etcd would create this watch. */
  #onPermitted(watch: ClientWatch, slot: AnswerSlot): void {
    if (!this.#isTaken(watch.request)) {
      this.#begin(watch, slot);
      return;
    }
    this.#drop(watch);
    slot.frame = this.#refused(duplicateWatch, watch.range);
    this.#deps.sender.pump();
  }

  /** Begins to serve a watch that the client may have. The answer to its create request has this place. */
  #begin(watch: ClientWatch, slot: AnswerSlot): void {
    const { shared, sender } = this.#deps;
    const { range, request } = watch;
    if (!shared.isCached(range, request.startRevision)) {
      this.#relayed.create(watch, slot);
      return;
    }
    const current = shared.currentRevision(range);
    watch.beginAfter(current);
    this.#add(watch);
    this.#openCached(watch);
    shared.reported(current);
    slot.frame = this.#encode({ watchId: watch.id, created: true }, current);
    sender.pump();
  }

  /** Cancels a watch, and answers the request. An unknown id has no answer, as with etcd. */
  cancel(id: bigint): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    // Of a watch that begins later nothing has been sent, up to a revision that etcd does not have.
    const sent = watch.syncedRevision ?? watch.sent;
    const revision = Math.min(sent, this.#deps.shared.currentRevision(watch.range));
    watch.isOver = true;
    this.#remove(watch);
    this.#answer({ watchId: id, canceled: true }, revision);
  }

  /** The responses for the next batch of a cached watch. */
  framesOf(watch: ClientWatch): readonly Uint8Array[] | undefined {
    const { watcher, range, request } = watch;
    if (watcher === undefined || range === undefined) return undefined;
    const batch = watcher.read();
    if (batch === undefined) {
      if (watcher.ended instanceof Error) this.#onEnded(watch, watcher.ended);
      return undefined;
    }
    const { prefix } = range.resource.keys;
    const { header } = this.#deps.shared;
    const frames = etcdFramesOf(batch, request, prefix, header, watch.from, range.compacted);
    if (frames === previousUnknown) {
      this.#relay(watch);
      return undefined;
    }
    const { revision = 0 } = batch;
    if (revision > watch.sent) watch.sent = revision;
    if (frames.length > 0) this.#deps.shared.reported(revision);
    return frames;
  }

  /** Ends the stream, so that others may have watches of etcd. Its client resumes it. */
  #makeRoom(): void {
    this.#deps.end(refused(status.UNAVAILABLE, "too many watches are not served from a cache"));
  }

  /** A response of etcd was sent. */
  onRelayed(): void {
    this.#relayed.mayContinue();
  }

  /** Called about once a second. */
  check(): void {
    if (this.#deps.shared.hasRefused) this.#relayRefused();
    if (this.#relayed.size > 0) this.#handOver();
    this.#relayed.check();
  }

  /** Ends all. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#relayed.close();
    for (const watch of this.#watches.values()) watch.watcher?.close();
    this.#deps.shared.watches -= this.#size;
    this.#size = 0;
    this.#watches.clear();
  }

  /** The id of the next watch whose client does not choose one. A watch that is refused has not used it. */
  #freeId(): bigint {
    while (this.#watches.has(this.#nextId)) this.#nextId++;
    return this.#nextId;
  }

  #isTaken({ watchId }: CreateRequest): boolean {
    return watchId !== 0n && this.#watches.has(watchId);
  }

  /** Serves the watch from the cache, from behind what was sent. */
  #openCached(watch: ClientWatch): void {
    const { range, request } = watch;
    if (range === undefined) throw new Error("A watch without a cached range can't be cached.");
    const { cacher } = range.resource;
    watch.watcher = cacher.watch({
      scope: range.scope,
      afterRevision: Math.min(watch.from - 1, cacher.revision),
      withPrevious: request.withPrevious,
      rawKeys: true,
      owner: this.#deps.owner,
    });
    watch.watcher.onReadable(() => this.#deps.sender.ready(watch));
  }

  /** The cache has ended a watch. */
  #onEnded(watch: ClientWatch, error: Error): void {
    if (hasReason(error, "DRAINING")) {
      this.#deps.end(refused(status.UNAVAILABLE, stopped));
    } else if (hasReason(error, "HISTORY_CHANGED")) {
      // The client's revisions are of another history: it must list, as after a compaction.
      const { cacher } = watch.range?.resource ?? {};
      this.#deps.shared.historyChanged();
      watch.isOver = true;
      this.#remove(watch);
      const compactRevision = Math.max(cacher?.revision ?? 0, 1);
      this.#answer({ watchId: watch.id, canceled: true, compactRevision }, 0);
    } else if (this.#deps.shared.isCached(watch.range, watch.sent + 1)) {
      watch.from = watch.sent + 1;
      this.#openCached(watch);
    } else {
      this.#relay(watch);
    }
  }

  /** Makes etcd serve a watch, from behind what was sent. */
  #relay(watch: ClientWatch): void {
    // Before it is closed, which notifies the sender.
    const { watcher } = watch;
    watch.watcher = undefined;
    watcher?.close();
    if (!this.#deps.shared.mayRelay(groupOf(this.#deps.owner))) {
      this.#makeRoom();
      return;
    }
    this.#relayed.resume(watch);
  }

  /** The watches of a cache that etcd refuses what it needs are etcd's to serve or to refuse. */
  #relayRefused(): void {
    for (const watch of this.#watches.values()) {
      if (watch.watcher === undefined || !watch.isAnnounced || watch.isQueued) continue;
      if (watch.range !== undefined && isRefused(watch.range.resource)) this.#relay(watch);
    }
  }

  /** Serves watches of etcd from the cache, as soon as it has all that they have not been sent. */
  #handOver(): void {
    const { shared } = this.#deps;
    let isProgressNeeded = false;
    for (const watch of this.#relayed) {
      if (watch.range === undefined || !watch.isSettled) continue;
      watch.sent = Math.max(watch.sent, watch.progressed);
      if (shared.isCached(watch.range, watch.sent + 1)) {
        this.#relayed.cancel(watch);
        watch.from = Math.max(watch.from, watch.sent + 1);
        this.#openCached(watch);
      } else if (watch.range.resource.cacher.ready) {
        isProgressNeeded = true;
      }
    }
    if (isProgressNeeded) this.#relayed.requestProgress();
  }

  #answer(answer: Answer, revision: number): void {
    if (answer.canceled !== true) this.#deps.shared.reported(revision);
    this.#deps.sender.answer(this.#encode(answer, revision));
  }

  #encode(answer: Answer, revision: number): Buffer {
    return encodeAnswer(this.#deps.shared.header(revision), answer);
  }

  /** The answer to a create request that is refused. */
  #refused(cancelReason: string, range: CachedRange | undefined): Buffer {
    const answer = { watchId: noWatchId, created: true, canceled: true, cancelReason };
    return this.#encode(answer, this.#deps.shared.currentRevision(range));
  }

  /** The watch is created: it has an id, until `#remove`. */
  #add(watch: ClientWatch): void {
    const { watchId } = watch.request;
    watch.id = watchId === 0n ? this.#freeId() : watchId;
    if (watchId === 0n) this.#nextId = watch.id + 1n;
    this.#watches.set(watch.id, watch);
  }

  /** The watch is refused. */
  #drop(watch: ClientWatch): void {
    watch.isOver = true;
    this.#count(watch, -1);
  }

  #count({ request }: ClientWatch, by: 1 | -1): void {
    const { shared, retain } = this.#deps;
    this.#size += by;
    shared.watches += by;
    retain(by * (watchBytes + request.encoded.length));
  }

  #remove(watch: ClientWatch): void {
    this.#watches.delete(watch.id);
    this.#count(watch, -1);
    const { watcher } = watch;
    watch.watcher = undefined;
    watcher?.close();
    this.#relayed.cancel(watch);
  }
}
