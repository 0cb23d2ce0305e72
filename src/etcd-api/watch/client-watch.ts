import type { CacheWatcher } from "../../cacher/watch/cache-watcher.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { watchIdField } from "../../etcd/wire/watch-response.ts";
import type { WatchScope } from "../../storage/storage.ts";
import type { CachedResource } from "../cached/cached-resource.ts";

/** What a watch is served from: a resource that has all keys of its range. */
export interface CachedRange {
  readonly resource: CachedResource;
  readonly scope: WatchScope;
  /**
   * The revision that etcd has compacted, if the watch begins there: etcd reads previous values from the state before a
   * revision, so those of this one are missing. Undefined: it has those of all events.
   */
  readonly compacted?: number;
}

/** One watch of a client's stream. It is served by a watcher of a cache, or by a watch of etcd. */
export class ClientWatch {
  #id = 0n;
  #idField: Buffer = watchIdField(0n);
  readonly request: CreateRequest;
  /** Undefined: no cached resource has its range. */
  readonly range: CachedRange | undefined;
  /** Events of lower revisions are not sent. */
  from = 0;
  /** Everything that it asked for up to this revision has been sent, and the client may know that. */
  sent = 0;
  /** Whether its creation was reported to the client. Nothing of it is sent before. */
  isAnnounced = false;
  /** Whether it is in the sender's queue of watches that may have something to send. */
  isQueued = false;
  /** Whether it has sent events since the last tick of progress notifications. */
  isActive = false;
  isOver = false;
  /** Whether it was there when the client last asked for progress: the answer waits for its progress. */
  isAwaited = false;
  watcher: CacheWatcher | undefined;
  /** Its id at etcd; undefined: it is served from a cache. */
  upstreamId: number | undefined;
  /** The revision up to which etcd was synced when it last answered a progress request; 0: not since it serves the watch. */
  progressed = 0;
  /** Number of etcd's responses that wait to be sent. */
  waiting = 0;
  /** Whether the fragments of a response of etcd were not all received. */
  isFragmented = false;

  constructor(request: CreateRequest, range: CachedRange | undefined) {
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

  /** Whether everything that was received of etcd has been sent, so that the cache may continue it. */
  get isSettled(): boolean {
    return this.isAnnounced && this.waiting === 0 && !this.isFragmented;
  }

  /**
   * The revision up to which the client has all events; undefined: it has not, or that is not known, or the watch begins
   * later. It is at least that of every event that was sent.
   */
  get syncedRevision(): number | undefined {
    const synced = this.upstreamId === undefined ? this.#cachedRevision : this.#relayedRevision;
    return synced !== undefined && this.isSyncedAt(synced) ? synced : undefined;
  }

  get #cachedRevision(): number | undefined {
    return this.isAnnounced && !this.isQueued ? this.watcher?.syncedRevision : undefined;
  }

  get #relayedRevision(): number | undefined {
    return this.isSettled && this.progressed > 0 ? Math.max(this.progressed, this.sent) : undefined;
  }

  /** Whether this revision may be reported to the client: as etcd, not before the start revision. */
  isSyncedAt(revision: number): boolean {
    return revision >= Math.max(this.request.startRevision, this.from - 1);
  }
}
