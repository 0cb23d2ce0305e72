import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import { SlicedQueue } from "../../base/time-slice-queue.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import type { Storage } from "../../storage/storage.ts";
import { Folds } from "../catch-up/coalesced-backlogs.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import type { CachedReads } from "../freshness/cache-reader.ts";
import type { SharedRevision } from "../freshness/current-revision.ts";
import type { Readiness } from "../freshness/readiness.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { StoredReads } from "../freshness/upstream-reader.ts";
import { draining } from "../request/errors.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { KeptPieces } from "../state/chunk-cache.ts";
import type { EventWindow } from "../state/event-window-backfill.ts";
import type { PastStates } from "../state/historical-snapshots.ts";
import type { RetainedStates } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CacheWatcher } from "./cache-watcher.ts";
import { SharedFilters } from "./shared-filters.ts";
import { WatchOpening } from "./watch-opener.ts";
import type { WatcherHost } from "./watcher-context.ts";
import { Patrol } from "./watcher-maintenance.ts";

export interface WatchesParts {
  readonly name: string;
  readonly storage: Storage;
  readonly stored: StoredReads;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly bounds: WatcherBounds;
  readonly cache: WatchCache;
  readonly window: EventWindow;
  readonly readiness: Readiness;
  readonly reads: CachedReads;
  readonly upstream: SharedRevision;
  readonly waiters: RevisionWaiters;
  readonly dispatcher: Dispatcher;
  readonly snapshots: Snapshots;
  readonly pastStates: PastStates;
  readonly retained: RetainedStates;
  readonly kept: KeptPieces;
  readonly scheduler: TimeSliceScheduler;
}

/** All watches on a Cacher: how they begin, what they share, who looks after them, and how they end. */
export class Watches {
  readonly #parts: WatchesParts;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #filters = new SharedFilters();
  readonly #host: WatcherHost;
  readonly #opening: WatchOpening;
  readonly #patrol: Patrol;
  /** What those of LATEST_STATE that are behind have missed. */
  readonly folds: Folds;
  #draining = false;
  #slowConsumers = 0;

  constructor(parts: WatchesParts) {
    const { bounds, cache, clock, dispatcher, kept, storage } = parts;
    this.#parts = parts;
    const queue = new SlicedQueue(clock);
    this.folds = new Folds({
      clock,
      cache,
      dispatcher,
      kept,
      queue,
      pieceBytes: bounds.batchBytes,
      maxBytes: bounds.foldedBytes,
    });
    this.#host = {
      bounds,
      dispatcher,
      get history() {
        return cache.history;
      },
      folds: this.folds,
      queue,
      forget: (watcher, end) => {
        this.#watchers.delete(watcher);
        dispatcher.leave(watcher);
        this.#filters.release(watcher.filter);
        if (hasReason(end, "SLOW_CONSUMER")) this.#slowConsumers++;
      },
      listenerFailed: (error) => this.#asFanoutError(error),
    };
    this.#opening = new WatchOpening({
      ...parts,
      fail: (watcher, error) => {
        if (watcher.state !== "ended") watcher.fail(this.#asFanoutError(error));
      },
    });
    const requestProgress = (): void => storage.requestProgress();
    const terrain = { ...parts, watchers: this.#watchers, folds: this.folds, requestProgress };
    this.#patrol = new Patrol(terrain, clock);
  }

  /** Those that have not ended. */
  get all(): ReadonlySet<CacheWatcher> {
    return this.#watchers;
  }

  /** How many different filters they have. */
  get filters(): number {
    return this.#filters.filters;
  }

  /** How many were ended for not keeping up. */
  get slowConsumers(): number {
    return this.#slowConsumers;
  }

  /** Looks after them until it is stopped. */
  start(): void {
    this.#patrol.start();
  }

  stop(): void {
    this.#patrol.stop();
  }

  open(request: CacheWatchRequest): CacheWatcher {
    const filter = this.#filters.acquire(request);
    const watcher = new CacheWatcher(
      filter,
      {
        delivery: request.delivery ?? "EVERY_EVENT",
        bookmarkIntervalMs: request.bookmarkIntervalMs ?? 60_000,
        deadline: request.deadline,
        expiresAt: request.expiresAt,
        eagerBookmarks: request.eagerBookmarks ?? false,
      },
      this.#host,
      this.#parts.clock.now(),
    );
    try {
      if (this.#draining) throw draining();
      this.#parts.readiness.check();
    } catch (error) {
      watcher.fail(this.#asFanoutError(error));
      return watcher;
    }
    this.#watchers.add(watcher);
    // What the filter has in common with others is not to be kept a second time.
    this.#opening.begin(watcher, { ...request, selection: filter.selection });
    return watcher;
  }

  /** Ends all. */
  fail(error: WatchFanoutError): void {
    for (const watcher of [...this.#watchers]) watcher.fail(error);
  }

  /** Ends all with DRAINING, after a last bookmark where nothing is owed, and refuses new ones. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    const { dispatcher } = this.#parts;
    dispatcher.flush();
    const { bookmark } = dispatcher;
    for (const watcher of [...this.#watchers]) {
      watcher.bookmark(bookmark);
      watcher.fail(draining());
    }
  }

  #asFanoutError(error: unknown): WatchFanoutError {
    if (error instanceof WatchFanoutError) return error;
    const id = randomUUID();
    this.#parts.logger.error({ err: error, id, resource: this.#parts.name }, "a stream failed");
    return new WatchFanoutError(
      "INTERNAL",
      `A fault of the service ended this stream; its log says more under ${id}.`,
      { metadata: { id }, cause: error },
    );
  }
}
