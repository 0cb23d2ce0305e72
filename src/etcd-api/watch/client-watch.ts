import { status } from "@grpc/grpc-js";
import { hasReason } from "../../base/errors.ts";
import { groupOf } from "../../base/fair-queue.ts";
import type { CacheWatcher } from "../../cacher/watch/cache-watcher.ts";
import { stopped } from "../../etcd/wire/error-texts.ts";
import { etcdFramesOf, previousUnknown } from "../../etcd/wire/watch-events.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { type Answer, watchIdField } from "../../etcd/wire/watch-response.ts";
import type { RevisionJoiner } from "../../etcd/wire/whole-revisions.ts";
import { refused } from "../../server/calls/refusals.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { type CachedRange, isRefused } from "../cached/cached-resources.ts";
import type { WatchService } from "./watch-service.ts";

/** The place of a response to a request. Responses are sent in the order of their requests. */
export interface AnswerSlot {
  /** Undefined: it is not known yet, and all later ones wait. */
  frame: Uint8Array | undefined;
  /** The watch that it announces. */
  readonly watch: ClientWatch | undefined;
}

/**
 * The place of the progress of this watch. It is made when it is sent: behind an answer that is not known yet it waits, and
 * meanwhile events of the watch are sent.
 */
export interface ProgressSlot {
  readonly progressOf: ClientWatch;
}

/** A watch at etcd, which serves a client's watch, or is only there to be permitted or refused. */
export interface UpstreamWatch {
  readonly watch: ClientWatch;
  readonly id: number;
  /** Number of progress requests that were sent before its create request. */
  readonly requestsBefore: number;
  /** The revision of the answer to its create request; infinite until etcd has answered. */
  createdAt: number;
  /** The revision up to which etcd was synced when it last answered a progress request; 0: it has not. */
  progressed: number;
  /** Whether the fragments of a response were not all received. */
  isFragmented: boolean;
  /** Joins them, for a client that does not ask for fragments. */
  joiner: RevisionJoiner | undefined;
}

/** What a watch needs of its stream. */
export interface WatchOwner {
  /** Whose limits it counts against: its caller, on its connection. */
  readonly owner: object;
  readonly service: WatchService;
  readonly upstream: { resume(watch: ClientWatch): void; cancel(watch: ClientWatch): void };
  /** The watch may have something to send. */
  ready(watch: ClientWatch): void;
  /** Forgets a watch, and sends its last response. */
  endWatch(watch: ClientWatch, answer: Answer, revision: number): void;
  /** Ends the stream, so that others may have watches of etcd. Its client resumes it. */
  makeRoom(): void;
  /** Ends the stream. */
  end(why: WireStatus): void;
}

/**
 * One watch of a client's stream. It is served by a watcher of a cache, or by a watch of etcd where the cache can't, and handed
 * over from one to the other without a gap, as both know what has been sent.
 */
export class ClientWatch {
  #id = 0n;
  #idField: Buffer = watchIdField(0n);
  readonly #stream: WatchOwner;
  readonly request: CreateRequest;
  /** Undefined: no cached resource has its range. */
  readonly range: CachedRange | undefined;
  /** Events of lower revisions are not sent. */
  from = 0;
  /** Everything that it asked for up to this revision has been sent, and the client may know that. */
  sent = 0;
  /** The place of the answer to its create request; undefined once that is known. */
  answer: AnswerSlot | undefined;
  /** Whether its creation was reported to the client. Nothing of it is sent before. */
  isAnnounced = false;
  /** Whether it is in the sender's queue of watches that may have something to send. */
  isQueued = false;
  /** Whether it has sent events since the last round of progress notifications. */
  isActive = false;
  isOver = false;
  /** Whether it was there when the client last asked for progress: the answer waits for its progress. */
  isAwaited = false;
  watcher: CacheWatcher | undefined;
  /** Undefined: it is served from a cache. */
  upstream: UpstreamWatch | undefined;
  /** Number of etcd's responses that wait to be sent. */
  waiting = 0;

  constructor(stream: WatchOwner, request: CreateRequest, range: CachedRange | undefined) {
    this.#stream = stream;
    this.request = request;
    this.range = range;
    this.beginAfter(0);
  }

  /** Known when the watch is created: one that is refused does not get an id. */
  get id(): bigint {
    return this.#id;
  }

  set id(id: bigint) {
    this.#id = id;
    this.#idField = watchIdField(id);
  }

  /** The field of a response with the id. */
  get idField(): Buffer {
    return this.#idField;
  }

  /** Without a start revision, it begins after this revision. */
  beginAfter(revision: number): void {
    const { startRevision } = this.request;
    this.from = startRevision === 0 ? revision + 1 : startRevision;
    this.sent = this.from - 1;
  }

  /** Serves it from the cache, from `from` on. */
  serveFromCache(): void {
    const { range, request } = this;
    if (range === undefined) throw new Error("A watch without a cached range can't be cached.");
    const { cacher } = range.resource;
    this.watcher = cacher.watch({
      scope: range.scope,
      afterRevision: Math.min(this.from - 1, cacher.revision),
      withPrevious: request.withPrevious,
      rawKeys: true,
      owner: this.#stream.owner,
    });
    this.watcher.onReadable(() => this.#stream.ready(this));
  }

  /** Makes etcd serve it, from behind what was sent. */
  serveFromEtcd(): void {
    this.close();
    if (this.#stream.service.mayAddUpstream(groupOf(this.#stream.owner)))
      this.#stream.upstream.resume(this);
    else this.#stream.makeRoom();
  }

  /** If etcd refuses its cache what it needs, it is etcd's to serve or to refuse. */
  leaveRefused(): void {
    if (this.watcher === undefined || !this.isAnnounced || this.isQueued) return;
    if (this.range !== undefined && isRefused(this.range.resource)) this.serveFromEtcd();
  }

  /**
   * Continues a watch of etcd from the cache, as soon as that has all that was not sent. Returns whether progress of etcd could
   * bring it there.
   */
  handOver(): boolean {
    const { range, upstream } = this;
    if (range === undefined || !this.isSettled) return false;
    this.sent = Math.max(this.sent, upstream?.progressed ?? 0);
    if (!this.#stream.service.isCached(range, this.sent + 1)) return range.resource.cacher.ready;
    this.#stream.upstream.cancel(this);
    this.from = Math.max(this.from, this.sent + 1);
    this.serveFromCache();
    return false;
  }

  /** The responses for its next batch of the cache; undefined: it has no batch now. */
  takeFrames(): readonly Uint8Array[] | undefined {
    const { watcher, range, request } = this;
    if (watcher === undefined || range === undefined) return undefined;
    const batch = watcher.read();
    if (batch === undefined) {
      if (watcher.ended instanceof Error) this.#onEnded(watcher.ended);
      return undefined;
    }
    const { service } = this.#stream;
    const { prefix } = range.resource.keys;
    const frames = etcdFramesOf(batch, request, prefix, service.header, this.from, range.compacted);
    if (frames === previousUnknown) {
      this.serveFromEtcd();
      return undefined;
    }
    const { revision = 0 } = batch;
    if (revision > this.sent) this.sent = revision;
    if (frames.length > 0) service.reported(revision);
    return frames;
  }

  /** Closes the watcher, which notifies the sender, without this watch. */
  close(): void {
    const { watcher } = this;
    this.watcher = undefined;
    watcher?.close();
  }

  /**
   * The revision up to which the client has all events; undefined: it has not, or that is not known, or the watch begins
   * later. It is at least that of every event that was sent.
   */
  get syncedRevision(): number | undefined {
    const synced = this.upstream === undefined ? this.#cachedRevision : this.#upstreamRevision;
    return synced !== undefined && this.isSyncedAt(synced) ? synced : undefined;
  }

  /** Whether this revision may be reported to the client: as etcd, not before the start revision. */
  isSyncedAt(revision: number): boolean {
    return revision >= Math.max(this.request.startRevision, this.from - 1);
  }

  /** Whether everything that was received of etcd has been sent, so that the cache may continue it. */
  get isSettled(): boolean {
    return this.isAnnounced && this.waiting === 0 && this.upstream?.isFragmented !== true;
  }

  get #cachedRevision(): number | undefined {
    return this.isAnnounced && !this.isQueued ? this.watcher?.syncedRevision : undefined;
  }

  get #upstreamRevision(): number | undefined {
    const progressed = this.upstream?.progressed ?? 0;
    return this.isSettled && progressed > 0 ? Math.max(progressed, this.sent) : undefined;
  }

  /** The cache has ended it. */
  #onEnded(error: Error): void {
    const { service } = this.#stream;
    if (hasReason(error, "DRAINING")) {
      this.#stream.end(refused(status.UNAVAILABLE, stopped));
    } else if (hasReason(error, "HISTORY_CHANGED")) {
      // The client's revisions are of another history: it must list, as after a compaction.
      service.historyChanged();
      const compactRevision = Math.max(this.range?.resource.cacher.revision ?? 0, 1);
      this.#stream.endWatch(this, { watchId: this.id, canceled: true, compactRevision }, 0);
    } else if (service.isCached(this.range, this.sent + 1)) {
      this.from = this.sent + 1;
      this.serveFromCache();
    } else {
      this.serveFromEtcd();
    }
  }
}
