import type { Clock, Timer } from "../../base/clock.ts";
import { inSlices } from "../../base/time-slice-queue.ts";
import type { Folds } from "../catch-up/coalesced-backlogs.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import { expired, slowConsumer } from "../request/errors.ts";
import type { KeptPieces } from "../state/chunk-cache.ts";
import type { PastStates } from "../state/historical-snapshots.ts";
import type { RetainedStates } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** How often the patrol walks, in milliseconds: how late a bookmark may come. */
export const patrolIntervalMs = 500;
/** How long before a call's deadline its last bookmark comes, in milliseconds. */
const beforeDeadlineMs = 2_000;

/** How long a stream that is too old may go on until it can have a last bookmark, in milliseconds. */
const expiryGraceMs = 5_000;

export interface PatrolTerrain {
  readonly watchers: ReadonlySet<CacheWatcher>;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly bounds: WatcherBounds;
  readonly snapshots: Snapshots;
  readonly folds: Folds;
  readonly kept: KeptPieces;
  readonly pastStates: PastStates;
  readonly retained: RetainedStates;
  /** Asks upstream how far it is, so that bookmarks that are due soon say something new. */
  requestProgress(): void;
}

/**
 * Walks over all watchers at an interval and does what time demands: bookmarks where nothing has moved
 * the resume point for long, one before a call's deadline, an end for those who take nothing or have
 * fallen out of history, a fold for those who may, and history itself is trimmed. One timer serves all; a
 * watcher costs none.
 */
export class Patrol {
  readonly #terrain: PatrolTerrain;
  readonly #clock: Clock;
  #timer: Timer | undefined;
  /** Whether the last walk is still under way: it may take longer than the interval. */
  #walking = false;

  constructor(terrain: PatrolTerrain, clock: Clock) {
    this.#terrain = terrain;
    this.#clock = clock;
  }

  /** Walks until it is told to stop. Harmless when it does already. */
  start(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.start();
      if (!this.#walking) inSlices(this.#clock, this.#walk());
    }, patrolIntervalMs);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  *#walk(): Generator<void, void, void> {
    const { watchers, cache, snapshots, kept, folds, pastStates, retained } = this.#terrain;
    cache.history.trim(this.#clock.now());
    snapshots.expire();
    kept.expire();
    folds.expire();
    pastStates.expire();
    retained.limit();
    this.#walking = true;
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
    this.#walking = false;
    if (soon) this.#terrain.requestProgress();
  }

  #checkStall(watcher: CacheWatcher, now: number): void {
    const { stallTimeoutMs } = this.#terrain.bounds;
    if (watcher.taken !== watcher.seenTaken || !watcher.waits) {
      watcher.seenTaken = watcher.taken;
      watcher.takenAt = now;
    } else if (now - watcher.takenAt >= stallTimeoutMs) {
      const seconds = stallTimeoutMs / 1_000;
      watcher.abandon(slowConsumer(`Nothing was taken from the stream for ${seconds} s.`));
    }
  }

  /**
   * Ends a stream that is old enough for its client to be served elsewhere, with a last bookmark: as soon
   * as it can have one, or a little later without.
   */
  #checkAge(watcher: CacheWatcher, now: number): void {
    const { expiresAt = Infinity } = watcher.wishes;
    if (now < expiresAt) return;
    const told = watcher.bookmark(this.#terrain.dispatcher.bookmark);
    if (told || now - expiresAt >= expiryGraceMs) watcher.fail(expired());
  }

  /** Sends the bookmark that is due, and says whether one will be by the next walk. */
  #bookmark(watcher: CacheWatcher, now: number): boolean {
    const { dispatcher } = this.#terrain;
    const { bookmarkIntervalMs: intervalMs, deadline } = watcher.wishes;
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
    return next - now <= patrolIntervalMs && next >= now;
  }
}
