import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import { TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import type { Storage } from "../../storage/storage.ts";
import { CoalescedBacklogs } from "../catch-up/coalesced-backlogs.ts";
import { PendingSource } from "../catch-up/pending-source.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import type { CacheReader } from "../freshness/cache-reader.ts";
import type { CurrentRevision } from "../freshness/current-revision.ts";
import type { Readiness } from "../freshness/readiness.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { UpstreamReader } from "../freshness/upstream-reader.ts";
import { draining } from "../request/errors.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { ChunkCache } from "../state/chunk-cache.ts";
import type { EventWindowBackfill } from "../state/event-window-backfill.ts";
import type { HistoricalSnapshots } from "../state/historical-snapshots.ts";
import type { RetainedSnapshots } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CacheWatcher } from "./cache-watcher.ts";
import { SharedFilters } from "./shared-filters.ts";
import { WatchOpener } from "./watch-opener.ts";
import type { WatcherContext } from "./watcher-context.ts";
import { WatcherMaintenance } from "./watcher-maintenance.ts";

export interface WatcherRegistryDeps {
  readonly name: string;
  readonly storage: Storage;
  readonly upstreamReader: UpstreamReader;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly bounds: WatcherBounds;
  readonly cache: WatchCache;
  readonly backfill: EventWindowBackfill;
  readonly readiness: Readiness;
  readonly cacheReader: CacheReader;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly dispatcher: Dispatcher;
  readonly snapshots: Snapshots;
  readonly historicalSnapshots: HistoricalSnapshots;
  readonly retainedSnapshots: RetainedSnapshots;
  readonly chunkCache: ChunkCache;
  readonly scheduler: TimeSliceScheduler;
}

/** All watches on a Cacher: opens them, shares their filters and backlogs, maintains and ends them. */
export class WatcherRegistry {
  readonly #deps: WatcherRegistryDeps;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #filters = new SharedFilters();
  readonly #context: WatcherContext<CacheWatcher>;
  readonly #opener: WatchOpener;
  readonly #maintenance: WatcherMaintenance;
  /** The backlogs of unsynced LATEST_STATE watchers. */
  readonly coalescedBacklogs: CoalescedBacklogs;
  #draining = false;
  #slowConsumers = 0;

  constructor(deps: WatcherRegistryDeps) {
    const { bounds, cache, clock, dispatcher, chunkCache, storage } = deps;
    this.#deps = deps;
    const timeSlices = new TimeSliceQueue(clock);
    this.coalescedBacklogs = new CoalescedBacklogs({
      clock,
      cache,
      dispatcher,
      chunkCache,
      timeSlices,
      chunkBytes: bounds.batchBytes,
      maxBytes: bounds.coalescedBytes,
    });
    this.#context = {
      bounds,
      dispatcher,
      get eventWindow() {
        return cache.eventWindow;
      },
      coalescedBacklogs: this.coalescedBacklogs,
      timeSlices,
      forget: (watcher, end) => {
        this.#watchers.delete(watcher);
        this.#maintenance.remove(watcher);
        dispatcher.leave(watcher);
        this.#filters.release(watcher.filter);
        if (hasReason(end, "SLOW_CONSUMER")) this.#slowConsumers++;
      },
      listenerFailed: (error) => this.#asFanoutError(error),
    };
    this.#opener = new WatchOpener({
      ...deps,
      context: this.#context,
      fail: (watcher, error) => {
        if (watcher.state !== "ended") watcher.fail(this.#asFanoutError(error));
      },
    });
    const requestProgress = (): void => storage.requestProgress();
    const maintenanceDeps = {
      ...deps,
      coalescedBacklogs: this.coalescedBacklogs,
      requestProgress,
    };
    this.#maintenance = new WatcherMaintenance(maintenanceDeps, clock);
  }

  /** The watchers that have not ended. */
  get all(): ReadonlySet<CacheWatcher> {
    return this.#watchers;
  }

  /** Number of different filters. */
  get filters(): number {
    return this.#filters.filters;
  }

  /** Number of watchers that ended with SLOW_CONSUMER. */
  get slowConsumers(): number {
    return this.#slowConsumers;
  }

  /** Starts the watcher maintenance. Idempotent. */
  start(): void {
    this.#maintenance.start();
  }

  stop(): void {
    this.#maintenance.stop();
  }

  open(request: CacheWatchRequest): CacheWatcher {
    const filter = this.#filters.acquire(request);
    const source = new PendingSource();
    const watcher = new CacheWatcher(
      filter,
      {
        delivery: request.delivery ?? "EVERY_EVENT",
        bookmarkIntervalMs: request.bookmarkIntervalMs ?? 60_000,
        deadline: request.deadline,
        expiresAt: request.expiresAt,
        eagerBookmarks: request.eagerBookmarks ?? false,
      },
      this.#context,
      source,
    );
    try {
      if (this.#draining) throw draining();
      this.#deps.readiness.check();
    } catch (error) {
      watcher.fail(this.#asFanoutError(error));
      return watcher;
    }
    this.#watchers.add(watcher);
    this.#maintenance.add(watcher);
    // With the shared selection, so that the request does not keep another copy of it.
    const shared = { ...request, selection: filter.selection };
    this.#opener.begin({ watcher, request: shared, source });
    return watcher;
  }

  /** Ends all watchers with `error`. */
  fail(error: WatchFanoutError): void {
    for (const watcher of [...this.#watchers]) watcher.fail(error);
  }

  /** Ends all watchers with DRAINING, the synced ones after a last bookmark, and refuses new ones. Idempotent. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    const { dispatcher } = this.#deps;
    dispatcher.flush();
    for (const watcher of [...this.#watchers]) {
      dispatcher.sendBookmark(watcher);
      watcher.fail(draining());
    }
  }

  #asFanoutError(error: unknown): WatchFanoutError {
    if (error instanceof WatchFanoutError) return error;
    const id = randomUUID();
    this.#deps.logger.error({ err: error, id, resource: this.#deps.name }, "a stream failed");
    return new WatchFanoutError(
      "INTERNAL",
      `An internal error ended this stream. The log of the service has details under id ${id}.`,
      { metadata: { id }, cause: error },
    );
  }
}
