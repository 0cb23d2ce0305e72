import type { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { CoalescedBacklogs } from "../catch-up/coalesced-backlogs.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import type { Delivery } from "../request/request.ts";
import type { EventWindow } from "../state/event-window.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/**
 * Where a watcher is.
 *
 * - `starting`: waits for the cache to reach the revision that it begins after. Then: catching up.
 * - `initial`: its reader takes the initial state. Then: catching up, or starting.
 * - `catching up`: its reader takes from history what came since. Once level with the dispatcher: live.
 * - `live`: the dispatcher puts batches into its input. When that is full: stalled.
 * - `stalled`: has missed what came after what is in its input. Its reader takes what is there and is then
 *   catching up.
 * - `ended`: gets no more. What is in its input can still be read.
 */
export type WatcherState = "starting" | "initial" | "catching up" | "live" | "stalled" | "ended";

/** What a watcher reaches of the Cacher that it belongs to. */
export interface WatcherContext {
  readonly bounds: WatcherBounds;
  readonly dispatcher: Dispatcher;
  readonly eventWindow: EventWindow;
  readonly coalescedBacklogs: CoalescedBacklogs;
  /** What is done for those who are behind. */
  readonly timeSlices: TimeSliceQueue;
  /** Is told once when a watcher has ended: with which error, or null if its reader closed it. */
  forget(watcher: CacheWatcher, end: Error | null): void;
  /** What a watcher ends with whose reader's listener threw this. */
  listenerFailed(error: unknown): WatchFanoutError;
}

/** What a reader wants beside what its filter says: see CacheWatchRequest. */
export interface WatcherOptions {
  readonly delivery: Delivery;
  readonly bookmarkIntervalMs: number;
  readonly deadline: number | undefined;
  readonly expiresAt: number | undefined;
  readonly eagerBookmarks: boolean;
}
