import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import type { CoalescedBacklogs } from "../catch-up/coalesced-backlogs.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import { expired, slowConsumer } from "../request/errors.ts";
import type { ChunkCache } from "../state/chunk-cache.ts";
import type { HistoricalSnapshots } from "../state/historical-snapshots.ts";
import type { RetainedSnapshots } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** How often the patrol walks, in milliseconds: how late a bookmark may come. */
export const maintenanceIntervalMs = 500;
/** How long before a call's deadline its last bookmark comes, in milliseconds. */
const beforeDeadlineMs = 2_000;

/** How long a stream that is too old may go on until it can have a last bookmark, in milliseconds. */
const expiryGraceMs = 5_000;

export interface WatcherMaintenanceDeps {
  readonly watchers: ReadonlySet<CacheWatcher>;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly bounds: WatcherBounds;
  readonly snapshots: Snapshots;
  readonly coalescedBacklogs: CoalescedBacklogs;
  readonly chunkCache: ChunkCache;
  readonly historicalSnapshots: HistoricalSnapshots;
  readonly retainedSnapshots: RetainedSnapshots;
  /** Asks upstream how far it is, so that bookmarks that are due soon say something new. */
  requestProgress(): void;
}

/**
 * Walks over all watchers at an interval and does what time demands: bookmarks where nothing has moved
 * the resume point for long, one before a call's deadline, an end for those who take nothing or have
 * fallen out of history, a fold for those who may, and history itself is trimmed. One timer serves all; a
 * watcher costs none.
 */
export class WatcherMaintenance {
  readonly #deps: WatcherMaintenanceDeps;
  readonly #clock: Clock;
  #timer: Timer | undefined;
  /** Whether the last walk is still under way: it may take longer than the interval. */
  #isRunning = false;

  constructor(deps: WatcherMaintenanceDeps, clock: Clock) {
    this.#deps = deps;
    this.#clock = clock;
  }

  /** Walks until it is told to stop. Harmless when it does already. */
  start(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.start();
      if (!this.#isRunning) runInTimeSlices(this.#clock, this.#run());
    }, maintenanceIntervalMs);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  *#run(): Generator<void, void, void> {
    const {
      watchers,
      cache,
      snapshots,
      chunkCache,
      coalescedBacklogs,
      historicalSnapshots,
      retainedSnapshots,
    } = this.#deps;
    cache.eventWindow.trim(this.#clock.now());
    snapshots.expire();
    chunkCache.expire();
    coalescedBacklogs.expire();
    historicalSnapshots.expire();
    retainedSnapshots.enforceLimits();
    this.#isRunning = true;
    let soon = false;
    for (const watcher of watchers) {
      // The walk may take long.
      const now = this.#clock.now();
      watcher.checkWindow();
      this.#checkStall(watcher, now);
      if (this.#bookmark(watcher, now)) soon = true;
      this.#checkAge(watcher, now);
      yield;
    }
    this.#isRunning = false;
    if (soon) this.#deps.requestProgress();
  }

  #checkStall(watcher: CacheWatcher, now: number): void {
    const { stallTimeoutMs } = this.#deps.bounds;
    if (watcher.consumed !== watcher.seenConsumed || !watcher.hasPending) {
      watcher.seenConsumed = watcher.consumed;
      watcher.consumedAt = now;
    } else if (now - watcher.consumedAt >= stallTimeoutMs) {
      const seconds = stallTimeoutMs / 1_000;
      watcher.endAndDiscard(slowConsumer(`Nothing was taken from the stream for ${seconds} s.`));
    }
  }

  /**
   * Ends a stream that is old enough for its client to be served elsewhere, with a last bookmark: as soon
   * as it can have one, or a little later without.
   */
  #checkAge(watcher: CacheWatcher, now: number): void {
    const { expiresAt = Infinity } = watcher.options;
    if (now < expiresAt) return;
    const sent = watcher.bookmark(this.#deps.dispatcher.bookmark);
    if (sent || now - expiresAt >= expiryGraceMs) watcher.fail(expired());
  }

  /** Sends the bookmark that is due, and says whether one will be by the next walk. */
  #bookmark(watcher: CacheWatcher, now: number): boolean {
    const { dispatcher } = this.#deps;
    const { bookmarkIntervalMs: intervalMs, deadline } = watcher.options;
    if (deadline !== undefined && !watcher.deadlineBookmarked) {
      if (now >= deadline - beforeDeadlineMs) {
        watcher.deadlineBookmarked = watcher.bookmark(dispatcher.bookmark);
        if (watcher.deadlineBookmarked) watcher.movedAt = now;
      }
    }
    if (watcher.position !== watcher.seenPosition) {
      watcher.seenPosition = watcher.position;
      watcher.movedAt = now;
    } else if (now - watcher.movedAt >= intervalMs) {
      if (watcher.bookmark(dispatcher.bookmark)) watcher.movedAt = now;
      watcher.seenPosition = watcher.position;
    }
    const next = Math.min(watcher.movedAt + intervalMs, (deadline ?? Infinity) - beforeDeadlineMs);
    return next - now <= maintenanceIntervalMs && next >= now;
  }
}
