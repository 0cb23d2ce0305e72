import type { WatchFanoutError } from "../../base/errors.ts";
import type { LatencySampler } from "../../base/latency-sampler.ts";
import type { SourceContext } from "../catch-up/watch-source.ts";
import type { Delivery } from "../request/request.ts";

/** The parts of the Cacher that a watcher uses. */
export interface WatcherContext<Watcher> extends SourceContext {
  /** Gets each batch of events that a client reads from the buffer of its watcher. */
  readonly deliveryLatency: LatencySampler;
  /** Called once when a watcher has ended: with its error, or null if the client closed it. */
  forget(watcher: Watcher, end: Error | null): void;
  /** Returns the error for the client of a stream that `error` ends: INTERNAL for a bug, which it logs. */
  toStreamError(error: unknown): WatchFanoutError;
}

/** What a watch requests besides its filter: see CacheWatchRequest. */
export interface WatcherOptions {
  readonly delivery: Delivery;
  readonly bookmarkIntervalMs: number;
  readonly deadline: number | undefined;
  readonly expiresAt: number | undefined;
  readonly eagerBookmarks: boolean;
  /** When it was requested, in the clock's milliseconds. */
  readonly openedAt: number;
  /** Whose time it catches up in; undefined: its own. */
  readonly owner: object | undefined;
}

/** One watcher as the last pass of the maintenance saw it. Times are by the clock, in milliseconds. */
export class MaintenanceRecord {
  /** Its resume point, and when that moved. */
  position = 0;
  movedAt: number;
  /** Its count of consumed batches, and when that grew or nothing was pending. */
  consumed = 0;
  consumedAt: number;
  /** Whether the bookmark before its deadline was sent. */
  isDeadlineBookmarked = false;

  constructor(openedAt: number) {
    this.movedAt = openedAt;
    this.consumedAt = openedAt;
  }
}
