import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import type { Reason } from "../../base/errors.ts";
import { Ledger } from "../../server/kernel/ledger.ts";
import { AccessProbe } from "../cached/access-probe.ts";
import type { CachedResource } from "../cached/cached-resource.ts";
import { cachedScope } from "../cached/cached-scope.ts";
import { CompactionProbe } from "../cached/compaction-probe.ts";
import { headerField } from "../contract/header-field.ts";
import type { NewestHeader } from "../contract/response-header.ts";
import type { CallMaintenance } from "../relay/call-maintenance.ts";
import type { EtcdCall } from "../relay/etcd-call.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { CachedRange, ClientWatch } from "./client-watch.ts";
import { type LeaderDependent, MemberMonitor } from "./member-monitor.ts";
import { type NotifiedStream, ProgressNotifier } from "./progress-notifier.ts";
import type { CreateRequest } from "./watch-request.ts";

/** Maximum number of watches of one stream, and of all streams together. */
const maxWatchesPerStream = 20_000;
const maxWatches = 500_000;

/** Maximum number of watches of all streams together that etcd serves. */
const maxRelayedWatches = 20_000;

/** Number of the history that a cache lists first. */
const firstGeneration = 1;

/** Whether a call has the credential of a user of etcd, whose rights are etcd's to check, for each watch. */
export function hasCredential(metadata: OutgoingHttpHeaders): boolean {
  return metadata["token"] !== undefined || metadata["authorization"] !== undefined;
}

/** What the service is made of. */
export interface WatchServiceDeps {
  readonly upstream: Upstream;
  readonly maintenance: CallMaintenance<EtcdCall>;
  readonly newestHeader: NewestHeader;
  readonly clock: Clock;
  /** Interval of progress notifications, in milliseconds. */
  readonly progressIntervalMs: number;
}

/** Number of open watches of streams that are not relayed as a whole. */
export interface WatchCounts {
  /** All. */
  readonly watches: number;
  /** Those that etcd serves. */
  readonly relayed: number;
}

/** Serves etcd's Watch from caches. What all of its streams share. */
export class WatchService {
  readonly upstream: Upstream;
  readonly maintenance: CallMaintenance<EtcdCall>;
  readonly monitor: MemberMonitor;
  /** Number of open watches. */
  watches = 0;
  /** Those that etcd serves, by caller. */
  readonly relayed = new Ledger<unknown>();
  readonly #newestHeader: NewestHeader;
  readonly #notifier: ProgressNotifier;
  readonly #clock: Clock;
  #resources: readonly CachedResource[] = [];
  #isOpen = true;
  #access = new Map<CachedResource, AccessProbe>();
  #compactions = new Map<CachedResource, CompactionProbe>();
  /** The histories that are known, by the number of their generation. */
  readonly #generations = new WeakMap<CachedResource, number>();

  constructor({
    upstream,
    maintenance,
    newestHeader,
    clock,
    progressIntervalMs,
  }: WatchServiceDeps) {
    this.upstream = upstream;
    this.maintenance = maintenance;
    this.#newestHeader = newestHeader;
    this.#clock = clock;
    this.monitor = new MemberMonitor(upstream, clock, newestHeader);
    this.#notifier = new ProgressNotifier(clock, progressIntervalMs, () => this.#reachAll());
  }

  get counts(): WatchCounts {
    return { watches: this.watches, relayed: this.relayed.total };
  }

  /** Whether etcd may serve one more of this caller, for which a stream of another may be ended. */
  mayRelay(caller: unknown): boolean {
    return this.relayed.makeRoom(caller, maxRelayedWatches);
  }

  /**
   * Serves the keys of these resources from their caches, in the streams that are opened from now on. `isOpen`: clients
   * without a credential may have what the caches have, as they were filled without a user.
   */
  serve(resources: readonly CachedResource[], isOpen: boolean = true): void {
    this.#resources = resources;
    this.#isOpen = isOpen;
    this.#access = new Map(
      resources.map((resource) => {
        const read = () => resource.storage.get({ key: "\0", at: { match: "ANY" } });
        return [resource, new AccessProbe(read, this.#clock)] as const;
      }),
    );
    this.#compactions = new Map(
      resources.map((resource) => {
        const isAvailable = (revision: number) => resource.storage.isAvailable(revision);
        return [resource, new CompactionProbe(isAvailable, this.#clock)] as const;
      }),
    );
  }

  /** etcd's authentication may have been changed: asks it again before anything is served. */
  accessChanged(): void {
    for (const access of this.#access.values()) access.forget();
  }

  /** etcd may have compacted more. */
  compacted(): void {
    for (const compactions of this.#compactions.values()) compactions.forget();
  }

  /**
   * What etcd has to be asked before a cache may serve a watch of this range. Undefined: nothing. Otherwise resolves to the
   * range; to undefined if etcd has to serve it. `isPermitted`: the client's right to the range is checked otherwise.
   */
  confirm(
    range: CachedRange,
    request: CreateRequest,
    isPermitted: boolean,
  ): Promise<CachedRange | undefined> | undefined {
    const access = isPermitted ? undefined : this.#confirmAccess(range.resource);
    const events = this.#confirmEvents(range, request);
    if (access === undefined) return events;
    return Promise.all([access, events ?? range]).then(([isOpen, confirmed]) =>
      isOpen ? confirmed : undefined,
    );
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

  /** Whether a call of Watch may be served from caches; otherwise it is relayed as a whole. */
  mayServe(metadata: IncomingHttpHeaders): boolean {
    if (this.#resources.length === 0) return false;
    if (!this.#isOpen && !hasCredential(metadata)) return false;
    // Compressed requests are etcd's to read.
    return (metadata["grpc-encoding"] ?? "identity") === "identity";
  }

  /** The stream is open, until `forget`. */
  add(stream: NotifiedStream): void {
    this.#notifier.add(stream);
  }

  /** The stream has ended. */
  forget(stream: NotifiedStream & LeaderDependent): void {
    this.monitor.delete(stream);
    this.#notifier.delete(stream);
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

  /** The cached resource that has all keys of a watch; undefined: no resource has. */
  rangeOf({ key, rangeEnd, hasUnknownField }: CreateRequest): CachedRange | undefined {
    if (hasUnknownField) return undefined;
    for (const resource of this.#resources) {
      const scope = cachedScope(resource.keys, key, rangeEnd);
      if (scope !== undefined) return { resource, scope };
    }
    return undefined;
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
    return this.#resources.some(isRefused);
  }

  /** Whether a stream with this number of watches may have one more. */
  mayAdd(watches: number): boolean {
    return watches < maxWatchesPerStream && this.watches < maxWatches;
  }

  /** Resolves when the caches of these watches have etcd's current revision, or can't get it. Never rejects. */
  async reachCurrentRevision(watches: Iterable<ClientWatch>): Promise<void> {
    const resources = new Set<CachedResource>();
    for (const { watcher, range } of watches) {
      if (watcher !== undefined && range !== undefined) resources.add(range.resource);
    }
    await this.#reach(resources);
  }

  /** Closes the monitor. */
  close(): void {
    this.monitor.close();
    this.#notifier.close();
  }

  /** Whether clients without a token may watch this resource; false as well if etcd can't be asked. */
  #confirmAccess(resource: CachedResource): Promise<boolean> | undefined {
    return this.#access
      .get(resource)
      ?.confirm()
      ?.then(
        () => true,
        () => false,
      );
  }

  /**
   * Resolves to the range if etcd has the events from the start revision on, and says whether it has what was before that.
   * If etcd can't be asked, the cache stands in for it.
   */
  #confirmEvents(
    range: CachedRange,
    { startRevision, withPrevious }: CreateRequest,
  ): Promise<CachedRange | undefined> | undefined {
    const { ready, revision, upstreamFailure } = range.resource.cacher;
    // Clients may know of more than the cache has.
    const isPast = startRevision > 0 && startRevision <= Math.max(revision, this.floor);
    const compactions = this.#compactions.get(range.resource);
    if (!isPast || !ready || upstreamFailure !== undefined) return undefined;
    const first = withPrevious ? Math.max(1, startRevision - 1) : startRevision;
    return compactions
      ?.confirm(first)
      ?.then(async (isAvailable) => {
        if (isAvailable) return range;
        const hasEvents = first < startRevision && (await compactions.confirm(startRevision));
        return hasEvents === false ? undefined : { ...range, compacted: startRevision };
      })
      .catch(() => range);
  }

  /** Begins with the revisions of another history if the cache has found one. */
  #observeHistory(resource: CachedResource): void {
    const { historyGeneration, revision, ready } = resource.cacher;
    const known = this.#generations.get(resource) ?? firstGeneration;
    if (!ready || known === historyGeneration) return;
    this.#generations.set(resource, historyGeneration);
    if (revision < this.floor) this.historyChanged();
  }

  /** Returns the `floor` of before. */
  async #reachAll(): Promise<number> {
    const { floor } = this;
    await this.#reach(this.#resources);
    return floor;
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

/** Failures to follow etcd that are etcd's answers. After others etcd may be away, or its state is listed next. */
const refusalReasons: readonly Reason[] = ["UPSTREAM_DENIED", "INVALID_REQUEST", "INTERNAL"];

/**
 * Whether the cache gets from etcd, which answers, nothing of what it needs, such as since etcd's authentication was
 * switched on: its watches would be silent.
 */
export function isRefused({ cacher: { upstreamFailure } }: CachedResource): boolean {
  return upstreamFailure !== undefined && refusalReasons.includes(upstreamFailure.reason);
}
