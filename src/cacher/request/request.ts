import type { GetRequest, ListRequest, WatchRequest } from "../../storage/storage.ts";
import type { Selection } from "./selection.ts";

/**
 * What a stream that does not keep up is owed.
 *
 * - `EVERY_EVENT`: every revision of every object, or an error.
 * - `LATEST_STATE`: the newest state of every object; what is between may be skipped. Nothing but taking
 *   nothing at all ends it for being slow, and a relist is told to it as what changed.
 */
export type Delivery = "EVERY_EVENT" | "LATEST_STATE";

/** What a Cacher's get takes beyond what every Storage's does. */
export interface CacheGetRequest extends GetRequest {
  /** Who asks, such as a connection: work is shared fairly between owners. Default: the request itself. */
  readonly owner?: object | undefined;
  /**
   * Is asked once the cache is new enough, before anything is read: undefined, or what it resolves to has to be awaited.
   * For whoever has no room for the answer now; a rejection is the read's.
   */
  readonly admit?: (() => Promise<void> | undefined) | undefined;
}

/** What a Cacher's list takes beyond what every Storage's does. */
export interface CacheListRequest extends ListRequest {
  /** Only objects that it picks; in place of `predicate`. */
  readonly selection?: Selection | undefined;
  /** As of a get. */
  readonly owner?: object | undefined;
  /** As of a get. */
  readonly admit?: (() => Promise<void> | undefined) | undefined;
}

/** What a Cacher's watch takes beyond what every Storage's does. */
export interface CacheWatchRequest extends WatchRequest {
  /** Only objects that it picks; in place of `predicate`, and whether with `withPrevious` or without. */
  readonly selection?: Selection | undefined;
  /** As of a get. */
  readonly owner?: object | undefined;
  /** Default EVERY_EVENT. */
  readonly delivery?: Delivery | undefined;
  /** The history that `afterRevision` comes from. Undefined or empty: not checked. */
  readonly historyId?: string | undefined;
  /** When the stream is to end with DRAINING, in the clock's milliseconds. Undefined: never. */
  readonly expiresAt?: number | undefined;
  /**
   * First the current state as ADDED, in batches without a revision, of which the last completes it
   * with `initialEventsEnd` and its revision. Then `afterRevision` says how new the state has to be:
   * undefined: linearizable; 0: any.
   */
  readonly sendInitialEvents?: boolean | undefined;
  /** How long the resume point may stand still before a bookmark moves it. Default 60,000 ms. */
  readonly bookmarkIntervalMs?: number | undefined;
  /**
   * When the reader's patience ends, in the clock's milliseconds; a bookmark comes 2 s before.
   * Undefined: never.
   */
  readonly deadline?: number | undefined;
  /** A bookmark also whenever the cache learns of a newer revision. */
  readonly eagerBookmarks?: boolean | undefined;
}
