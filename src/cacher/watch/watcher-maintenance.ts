import type { Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import type { SourceContext } from "../catch-up/watch-source.ts";
import { expired, slowConsumer } from "../request/errors.ts";
import type { ComponentContext } from "../state/component.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** Interval between passes, in milliseconds. A bookmark may be late by as much. */
export const maintenanceIntervalMs = 500;
/** How long before the deadline of a call its last bookmark is sent, in milliseconds. */
const beforeDeadlineMs = 2_000;

/** How long after expiry a stream waits until it can take a last bookmark, in milliseconds. */
const expiryGraceMs = 5_000;

/** Something that is kept or shared for a time. */
interface Expiring {
  /** Drops what is kept for too long, or exceeds its bound. */
  expire(): void;
}

/**
 * Passes over all watchers every `maintenanceIntervalMs` and does what depends on time:
 *
 * - sends a bookmark if the resume point has not moved for the watcher's bookmark interval, and one before the
 *   deadline of its call;
 * - ends watchers whose client takes nothing for the stall timeout, that need events which are no longer kept, or
 *   that have expired;
 * - has the backlog of unsynced LATEST_STATE watchers coalesced where the event window drops its events;
 * - trims the event window and expires what is shared for a time.
 *
 * One timer serves all watchers.
 */
export class WatcherMaintenance {
  readonly #context: ComponentContext;
  readonly #sources: SourceContext;
  readonly #expiring: readonly Expiring[];
  readonly #watchers: ReadonlySet<CacheWatcher>;
  #timer: Timer | undefined;
  /** Whether a pass is in progress, which may take longer than the interval. */
  #isRunning = false;

  /** `watchers` has those that have not ended. */
  constructor(
    context: ComponentContext,
    sources: SourceContext,
    expiring: readonly Expiring[],
    watchers: ReadonlySet<CacheWatcher>,
  ) {
    this.#context = context;
    this.#sources = sources;
    this.#expiring = expiring;
    this.#watchers = watchers;
  }

  /** Starts the periodic passes. Idempotent. */
  start(): void {
    const { clock } = this.#context;
    this.#timer ??= clock.setTimeout(() => {
      this.#timer = undefined;
      this.start();
      if (this.#isRunning) return;
      // Not by the pass itself, which begins in a later turn if this one's slice is over.
      this.#isRunning = true;
      runInTimeSlices(clock, this.#run());
    }, maintenanceIntervalMs);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  *#run(): Generator<void, void, void> {
    const { cache, clock, source } = this.#context;
    cache.eventWindow.trim(clock.now());
    for (const each of this.#expiring) each.expire();
    let needsProgress = false;
    for (const watcher of this.#watchers) {
      // Read for each watcher, as a pass may take long.
      const now = clock.now();
      watcher.checkWindow();
      this.#checkStall(watcher, now);
      if (this.#bookmark(watcher, now)) needsProgress = true;
      this.#checkAge(watcher, now);
      yield;
    }
    this.#isRunning = false;
    // So that the bookmarks have a newer revision.
    if (needsProgress) source.requestProgress();
  }

  #checkStall(watcher: CacheWatcher, now: number): void {
    const { maintenance: record } = watcher;
    const { stallTimeoutMs } = this.#sources.bounds;
    if (watcher.consumed !== record.consumed || !watcher.hasPending) {
      record.consumed = watcher.consumed;
      record.consumedAt = now;
    } else if (now - record.consumedAt >= stallTimeoutMs) {
      const seconds = stallTimeoutMs / 1_000;
      watcher.endAndDiscard(slowConsumer(`Nothing was taken from the stream for ${seconds} s.`));
    }
  }

  /**
   * Ends a stream that is past `expiresAt`, so that its client connects elsewhere. A last bookmark precedes the
   * end: if the stream cannot take one now, it has up to `expiryGraceMs` more.
   */
  #checkAge(watcher: CacheWatcher, now: number): void {
    const { expiresAt = Infinity } = watcher.options;
    if (now < expiresAt) return;
    const sent = this.#sources.dispatcher.sendBookmark(watcher);
    if (sent || now - expiresAt >= expiryGraceMs) watcher.fail(expired());
  }

  /** Sends the bookmark that is due. Returns whether another will be due by the next pass. */
  #bookmark(watcher: CacheWatcher, now: number): boolean {
    const { maintenance: record } = watcher;
    const { dispatcher } = this.#sources;
    const { bookmarkIntervalMs: intervalMs, deadline } = watcher.options;
    if (deadline !== undefined && !record.isDeadlineBookmarked) {
      if (now >= deadline - beforeDeadlineMs) {
        record.isDeadlineBookmarked = dispatcher.sendBookmark(watcher);
        if (record.isDeadlineBookmarked) record.movedAt = now;
      }
    }
    if (watcher.position !== record.position) {
      record.position = watcher.position;
      record.movedAt = now;
    } else if (now - record.movedAt >= intervalMs) {
      if (dispatcher.sendBookmark(watcher)) record.movedAt = now;
      record.position = watcher.position;
    }
    const next = Math.min(record.movedAt + intervalMs, (deadline ?? Infinity) - beforeDeadlineMs);
    return next - now <= maintenanceIntervalMs && next > now;
  }
}
