import type { IncomingHttpHeaders } from "node:http2";
import type { Upstream } from "../../etcd/client/upstream.ts";
import { headerField } from "../../etcd/wire/response-header.ts";
import type { CreateRequest } from "../../etcd/wire/watch-request.ts";
import { Ledger } from "../../server/kernel/ledger.ts";
import { Rounds } from "../../server/kernel/rounds.ts";
import {
  type CachedRange,
  type CachedResource,
  type CachedResources,
  hasCredential,
  isRefused,
} from "../cached/cached-resources.ts";
import type { NewestHeader } from "../cached/newest-header.ts";
import type { EtcdCall, EtcdServiceDeps } from "../calls/etcd-call.ts";
import { type LeaderDependent, MemberMonitor } from "./member-monitor.ts";

/** Maximum number of watches of one stream, and of all streams together. */
const maxWatchesPerStream = 20_000;
const maxWatches = 500_000;

/** Maximum number of watches of all streams together that etcd serves. */
const maxUpstreamWatches = 20_000;

/** Number of the history that a cache lists first. */
const firstGeneration = 1;

/** What the service is made of. */
export interface WatchServiceDeps extends EtcdServiceDeps {
  readonly upstream: Upstream;
  /** Interval of progress notifications, in milliseconds. */
  readonly progressIntervalMs: number;
}

/** Number of open watches of streams that are not forwarded as a whole. */
export interface WatchCounts {
  /** All. */
  readonly watches: number;
  /** Those that etcd serves. */
  readonly relayed: number;
}

/** A watch, as far as it says which cache serves it. */
interface CacheUser {
  readonly watcher: object | undefined;
  readonly range: CachedRange | undefined;
}

/** A stream of watches, in each round of progress notifications. */
interface NotifiedStream extends LeaderDependent {
  /** Sends the progress of its watches that is due, of revisions that are not lower than `floor`. */
  notifyProgress(floor: number): void;
}

/** Serves etcd's Watch from caches. What all of its streams share. */
export class WatchService {
  readonly upstream: Upstream;
  readonly calls: Rounds<EtcdCall>;
  readonly cached: CachedResources;
  readonly monitor: MemberMonitor;
  /** Number of open watches. */
  watches = 0;
  /** Those that etcd serves, by caller. */
  readonly upstreamWatches = new Ledger<unknown>();
  readonly #newestHeader: NewestHeader;
  /** Notify the watches of all streams of their progress. */
  readonly #notifications: Rounds<NotifiedStream>;
  /** The lowest revision that the current round of notifications may report. */
  #notifiedFloor = 0;
  /** The histories that are known, by the number of their generation. */
  readonly #generations = new WeakMap<CachedResource, number>();

  constructor(deps: WatchServiceDeps) {
    const { upstream, calls, cached, newestHeader, clock, progressIntervalMs } = deps;
    this.upstream = upstream;
    this.calls = calls;
    this.cached = cached;
    this.#newestHeader = newestHeader;
    this.monitor = new MemberMonitor(upstream, clock, newestHeader);
    this.#notifications = new Rounds(clock, {
      intervalMs: progressIntervalMs,
      // A stream may have thousands of watches.
      visitsPerStep: 1,
      visit: (stream) => stream.notifyProgress(this.#notifiedFloor),
      prepare: async () => {
        this.#notifiedFloor = this.floor;
        await this.#reach(this.cached);
      },
    });
  }

  get counts(): WatchCounts {
    return { watches: this.watches, relayed: this.upstreamWatches.total };
  }

  /** Whether etcd may serve one more of this caller, for which a stream of another may be ended. */
  mayAddUpstream(caller: unknown): boolean {
    return this.upstreamWatches.makeRoom(caller, maxUpstreamWatches);
  }

  /** Resolves if the member that calls go to has a leader. Rejects with an Error otherwise. */
  confirmLeader(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.monitor.whenKnown(true, (failure) => {
        if (failure === undefined) resolve();
        else reject(new Error(failure.details));
      });
    });
  }

  /** Whether a call of Watch may be served from caches; otherwise it is forwarded as a whole. */
  mayServe(metadata: IncomingHttpHeaders): boolean {
    const { cached } = this;
    return cached.mayServe(metadata) && (cached.isOpen || hasCredential(metadata));
  }

  /** The stream is open, until `forget`. */
  add(stream: NotifiedStream): void {
    this.#notifications.add(stream);
  }

  /** The stream has ended. */
  forget(stream: NotifiedStream): void {
    this.monitor.delete(stream);
    this.#notifications.delete(stream);
  }

  /** No answer of a cache may have a lower revision. */
  get floor(): number {
    return this.#newestHeader.floor;
  }

  /** This revision was reported to a client. */
  reported(revision: number): void {
    this.#newestHeader.raise(revision);
  }

  /** The field of a response with its header. */
  readonly header = (revision: number): Buffer => {
    const header = this.#newestHeader.header;
    return headerField(header ?? { clusterId: 0n, memberId: 0n, raftTerm: 0 }, revision);
  };

  /** The history of the store has changed: its revisions are others. */
  historyChanged(): void {
    this.#newestHeader.historyChanged();
  }

  /** The cached resource that has all keys of a watch, except one that the client leaves out; undefined: no resource has. */
  rangeOf(
    { key, rangeEnd, hasUnknownField }: CreateRequest,
    leftOut: Buffer | undefined,
  ): CachedRange | undefined {
    // Whether the next tier has a namespace, and so an empty key, is not known.
    const isUnclear = key.length === 0 && this.upstream.namespace === undefined;
    return hasUnknownField || isUnclear ? undefined : this.cached.rangeOf(key, rangeEnd, leftOut);
  }

  /** The revision of a new watch of this range. */
  currentRevision(range: CachedRange | undefined): number {
    if (range !== undefined) this.#observeHistory(range.resource);
    return Math.max(this.floor, range?.resource.cacher.revision ?? 0);
  }

  /** Whether a cache has all events of this range from a revision on; 0: from now on. */
  isCached(range: CachedRange | undefined, startRevision: number): boolean {
    if (range === undefined) return false;
    const { cacher } = range.resource;
    if (!cacher.ready || isRefused(range.resource)) return false;
    return startRevision === 0 || startRevision - 1 >= cacher.oldestRevision;
  }

  /** Whether etcd refuses a cache what it needs, so that its watches would be silent from now on. */
  get hasRefused(): boolean {
    return [...this.cached].some(isRefused);
  }

  /** Whether a stream with this number of watches may have one more. */
  mayAdd(watches: number): boolean {
    return watches < maxWatchesPerStream && this.watches < maxWatches;
  }

  /** Resolves when the caches of these watches have etcd's current revision, or can't get it. Never rejects. */
  async reachCurrentRevision(watches: Iterable<CacheUser>): Promise<void> {
    await this.#reach(resourcesOf(watches));
  }

  /** Resolves when the caches of these watches have a revision of an earlier response, or can't get it. Never rejects. */
  async reachKnownRevision(watches: Iterable<CacheUser>, revision: number): Promise<void> {
    const resources = [...resourcesOf(watches)];
    await Promise.allSettled(resources.map(({ cacher }) => cacher.reachKnownRevision(revision)));
  }

  /** Closes the monitor. */
  close(): void {
    this.monitor.close();
    this.#notifications.close();
  }

  /** Begins with the revisions of another history if the cache has found one. */
  #observeHistory(resource: CachedResource): void {
    const { historyGeneration, revision, ready } = resource.cacher;
    const known = this.#generations.get(resource) ?? firstGeneration;
    if (!ready || known === historyGeneration) return;
    this.#generations.set(resource, historyGeneration);
    if (revision < this.floor) this.historyChanged();
  }

  async #reach(resources: Iterable<CachedResource>): Promise<void> {
    const { floor } = this;
    const reached = [...resources].map(({ cacher }) => cacher.reachCurrentRevision());
    for (const result of await Promise.allSettled(reached)) {
      const revision = result.status === "fulfilled" ? result.value : undefined;
      // Only a store that was restored is behind what it has answered.
      if (revision !== undefined && revision < floor) this.historyChanged();
    }
  }
}

/** The resources whose caches serve these watches. */
function resourcesOf(watches: Iterable<CacheUser>): ReadonlySet<CachedResource> {
  const resources = new Set<CachedResource>();
  for (const { watcher, range } of watches) {
    if (watcher !== undefined && range !== undefined) resources.add(range.resource);
  }
  return resources;
}
