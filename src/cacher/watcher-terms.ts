import type { WatchFanoutError } from "../errors.ts";
import type { CacheWatcher } from "./cache-watcher.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { Folds } from "./folds.ts";
import type { History } from "./history.ts";
import type { Delivery } from "./request.ts";
import type { SlicedQueue } from "./sliced.ts";

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

export interface WatcherBounds {
  /**
   * Batches that a live watcher's input holds at the least and at the most. Between them it is sized by
   * how many came of late: see InputSizing.
   */
  readonly minInputBatches: number;
  readonly inputBatches: number;
  /** The same in bytes, by weight; one batch always has room. */
  readonly minInputBytes: number;
  readonly inputBytes: number;
  /** About how large a batch is at the most, in bytes. Only a single revision makes a larger one. */
  readonly batchBytes: number;
  /** How many events of history to look at in one go. */
  readonly scanEvents: number;
  /** Bytes that are kept beyond the history window for a watcher that takes its initial state. */
  readonly owedBytes: number;
  /** Bytes that are kept for all LATEST_STATE watchers together that are behind, by weight. */
  readonly foldedBytes: number;
  /** Bytes that old states may keep alive, which initial states are taken from, all together, by weight. */
  readonly retainedBytes: number;
  /** How long a watcher may take nothing of what waits for it, in milliseconds. */
  readonly stallTimeoutMs: number;
}

export const defaultWatcherBounds: WatcherBounds = {
  minInputBatches: 16,
  inputBatches: 256,
  minInputBytes: 128 * 1024,
  inputBytes: 1024 * 1024,
  batchBytes: 256 * 1024,
  scanEvents: 20_000,
  owedBytes: 64 * 1024 * 1024,
  foldedBytes: 512 * 1024 * 1024,
  retainedBytes: 512 * 1024 * 1024,
  stallTimeoutMs: 60_000,
};

/** What a watcher reaches of the Cacher that it belongs to. */
export interface WatcherHost {
  readonly bounds: WatcherBounds;
  readonly dispatcher: Dispatcher;
  readonly history: History;
  readonly folds: Folds;
  /** What is done for those who are behind. */
  readonly queue: SlicedQueue;
  /** Is told once when a watcher has ended: with which error, or null if its reader closed it. */
  forget(watcher: CacheWatcher, end: Error | null): void;
  /** What a watcher ends with whose reader's listener threw this. */
  listenerFailed(error: unknown): WatchFanoutError;
}

/** What a reader wants beside what its filter says: see CacheWatchRequest. */
export interface WatcherWishes {
  readonly delivery: Delivery;
  readonly bookmarkIntervalMs: number;
  readonly deadline: number | undefined;
  readonly expiresAt: number | undefined;
  readonly eagerBookmarks: boolean;
}
