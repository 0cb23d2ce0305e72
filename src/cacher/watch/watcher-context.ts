import type { WatchFanoutError } from "../../base/errors.ts";
import type { CatchUpContext } from "../catch-up/catch-up-source.ts";
import type { Delivery } from "../request/request.ts";

/** What a watcher reaches of the Cacher that it belongs to. */
export interface WatcherContext<Watcher> extends CatchUpContext {
  /** Is told once when a watcher has ended: with which error, or null if its reader closed it. */
  forget(watcher: Watcher, end: Error | null): void;
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
