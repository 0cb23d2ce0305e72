import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { EventType } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  GetRequest,
  ListOrder,
  ListRequest,
  RevisionRequirement,
  WatchRequest,
  WatchScope,
} from "../../storage/storage.ts";
import type { Projection } from "./projection.ts";
import type { Predicate, Selection } from "./selection.ts";
import type { Shard } from "./shard.ts";

/**
 * What a stream delivers when its reader does not keep up.
 *
 * - `EVERY_EVENT`: every revision of every object, or an error.
 * - `LATEST_STATE`: the newest state of every object; intermediate states may be skipped. A slow stream ends only if
 *   its reader takes nothing at all, and a relist is delivered as the changes that it found.
 */
export type Delivery = "EVERY_EVENT" | "LATEST_STATE";

/** What of each object is delivered: all of it, all but its value, or what is made of its value. */
export type View = "FULL" | "KEYS" | Projection;

/** A name that is equal for views of a resource that deliver the same, and for no others. */
export function viewName(view: View = "FULL"): string {
  return typeof view === "string" ? view : view.canonical;
}

/** Estimated memory of a view, in bytes; 0 for one that all requests share. */
export function viewBytes(view: View = "FULL"): number {
  return typeof view === "string" ? 0 : view.bytes;
}

/** The object as a view delivers it. */
export function objectShown(object: StoredObject, view: View): StoredObject {
  if (view === "FULL") return object;
  return view === "KEYS" ? object.withoutValue() : view.shown(object);
}

/** A get of a Cacher, with options that other Storages do not have. */
export interface CacheGetRequest extends GetRequest {
  /** The caller, such as a connection: owners share time slices and upstream reads fairly. Default: the request. */
  readonly owner?: object | undefined;
}

/** A list of a Cacher, with options that other Storages do not have. */
export interface CacheListRequest extends ListRequest {
  /** Lists only objects for which it returns true. Not with `keysOnly`. */
  readonly predicate?: Predicate | undefined;
  /** Lists only objects of the selection. Replaces `predicate`. */
  readonly selection?: Selection | undefined;
  /** Only keys of the shard. */
  readonly shard?: Shard | undefined;
  /** Default FULL. */
  readonly view?: View | undefined;
  /**
   * Default KEY_ASCENDING. `startAfter` is the last key of the page before in this order. Rejects with LIST_TOO_LARGE in
   * another one if only the storage can answer, and has too many objects to sort.
   */
  readonly order?: ListOrder | undefined;
  /**
   * Whether only the number of objects is asked for. The result has no items, and it has the number as `remaining`. Limits
   * do not matter. Default false.
   */
  readonly countOnly?: boolean | undefined;
  /** See CacheGetRequest. */
  readonly owner?: object | undefined;
}

/** Whether a list is in key order, which needs no page to be sorted. */
export function isInKeyOrder({ order = "KEY_ASCENDING" }: CacheListRequest): boolean {
  return order === "KEY_ASCENDING";
}

/** A read of a Cacher by a caller that makes a result of the objects itself. */
export interface CacheStateRequest {
  /** Which objects, raw keys included. */
  readonly scope: WatchScope;
  /** How new the cache has to be. */
  readonly at: RevisionRequirement;
  /** The revision of the state; undefined: the newest. */
  readonly revision?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** See CacheGetRequest. */
  readonly owner?: object | undefined;
}

/** A read of a Cacher. */
export type ReadRequest = CacheGetRequest | CacheListRequest | CacheStateRequest;

/**
 * What `Cacher.reach` has found out for a read. Pass it to that read, which then does not wait for the cache again, unless
 * the cache has been replaced meanwhile.
 */
export interface Reached {
  /** Whether the cache was not new enough in time, so that only the store can serve the read. */
  readonly isLate: boolean;
  /** Which content of the cache is new enough (`WatchCache.epoch`). */
  readonly epoch: number;
  /** When the read arrived, in the clock's milliseconds. */
  readonly since: number;
}

/** The objects in a scope at one revision. Immutable. */
export interface CachedState {
  /** The revision of the state. */
  readonly revision: number;
  /** The revision of the cache when it was read. */
  readonly newest: number;
  /** In key order. It can be iterated any number of times. */
  readonly objects: Iterable<StoredObject>;
  /** The same, the last key first. */
  readonly reversed: Iterable<StoredObject>;
  /** Number of objects, counted faster than by iterating. */
  count(): TimeSlicedWork<number>;
  /**
   * Counts the state as retained by a slow reader until the returned function is called. `onEvict` is called if old states
   * take too much memory and this is the oldest.
   */
  retain(onEvict: () => void): () => void;
}

/** A watch of a Cacher, with options that other Storages do not have. */
export interface CacheWatchRequest extends WatchRequest {
  /**
   * Only objects that match before or after the change: ADDED means that an object enters the set, DELETED that it
   * leaves the set. Needs `withPrevious`.
   */
  readonly predicate?: Predicate | undefined;
  /** Watches only objects of the selection. Replaces `predicate`; unlike it, `withPrevious` is not required. */
  readonly selection?: Selection | undefined;
  /** Only keys of the shard. */
  readonly shard?: Shard | undefined;
  /** Default FULL. */
  readonly view?: View | undefined;
  /** Only events of these types. With `sendInitialEvents` ADDED must be one of them. Default: all types. */
  readonly eventTypes?: readonly EventType[] | undefined;
  /** See CacheGetRequest. */
  readonly owner?: object | undefined;
  /** What a slow stream delivers. Default EVERY_EVENT. */
  readonly delivery?: Delivery | undefined;
  /**
   * Whether events of raw keys are delivered, too, if the cache has them (`isRawKey` in model/key-bytes.ts). Not with
   * `sendInitialEvents`. Default false.
   */
  readonly rawKeys?: boolean | undefined;
  /** When the stream ends with DRAINING, in the clock's milliseconds. Undefined: never. */
  readonly expiresAt?: number | undefined;
  /**
   * Begins the stream with the current state as ADDED events, in batches without a revision. The last of these
   * batches has `initialEventsEnd` and the state's revision. `afterRevision` is then the revision that the state has
   * to have at least; undefined: linearizable; 0: any.
   */
  readonly sendInitialEvents?: boolean | undefined;
  /** Time without progress after which a bookmark moves the resume point, in milliseconds. Default 60,000. */
  readonly bookmarkIntervalMs?: number | undefined;
  /**
   * The call's deadline, in the clock's milliseconds: the stream gets a bookmark 2 s before it. Undefined: no
   * deadline.
   */
  readonly deadline?: number | undefined;
  /** Whether the stream also gets a bookmark whenever the cache learns of a newer revision. */
  readonly eagerBookmarks?: boolean | undefined;
}
