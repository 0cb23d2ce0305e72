import type { CoalescingStats } from "./catch-up/coalesced-backlogs.ts";
import type { WatcherState } from "./dispatch/dispatch-target.ts";
import type { BackfillStats } from "./state/event-window-backfill.ts";
import type { RetainedStats } from "./state/retained-snapshots.ts";

export { backfillStates } from "../reflector/backfill/window-backfill.ts";

/** What operators see first: what costs the same for any number of watchers. Counters begin at 0 with the Cacher. */
export interface CacheSummary {
  readonly ready: boolean;
  /** The cache holds everything up to and including this revision. */
  readonly revision: number;
  /** The newest revision that the store is known to have had. */
  readonly upstreamRevision: number;
  /** Milliseconds since the store last delivered anything: events, progress, a list. */
  readonly upstreamSilenceMs: number;
  /** For how long the store could not be listed or watched, in milliseconds; undefined while it is. */
  readonly failingForMs: number | undefined;
  /** Whether the store is watched; otherwise what the next attempt is. */
  readonly step: "watching" | "list" | "resume";
  readonly objects: number;
  readonly eventWindow: {
    readonly events: number;
    /** Memory bytes of the events. */
    readonly bytes: number;
    /** The smallest revision that a watch can be resumed from. */
    readonly oldestRevision: number;
    /** Revision of the newest event, or where the window began. */
    readonly newestRevision: number;
  };
  readonly receivedEvents: number;
  /** Events put into watcher buffers, counted once for each watcher. */
  readonly dispatchedEvents: number;
  /** Batches put into watcher buffers, counted once for each watcher. */
  readonly dispatchedBatches: number;
  /** Streams ended with SLOW_CONSUMER. */
  readonly slowConsumers: number;
  readonly reconnects: number;
  readonly relists: number;
  /** Starts from a state that an earlier process has kept: 0 or 1. */
  readonly warmStarts: number;
  /** Times that the state could not be read from or written to disk. */
  readonly keeperFailures: number;
}

/** A Cacher's state and counters. */
export interface CacherStats extends CacheSummary {
  /** How old the cache may be, in milliseconds; 0 while its source is followed. */
  readonly staleForMs: number;
  /** Memory bytes of the objects. */
  readonly objectBytes: number;
  readonly eventWindow: CacheSummary["eventWindow"] & { readonly oldestAgeMs: number };
  readonly backfill: BackfillStats;
  readonly watchers: Readonly<Record<Exclude<WatcherState, "ended">, number>>;
  /** Number of different filters of the watchers. Watchers that request the same share one. */
  readonly filters: number;
  /** The contents of all watcher buffers. */
  readonly buffers: {
    readonly batches: number;
    /** Memory bytes; a batch in the buffers of several watchers counts for each. */
    readonly bytes: number;
    /** Fullness of the fullest buffer, by batches or by bytes: 0 is empty, 1 is full. */
    readonly fullest: number;
    /** Maximum number of batches in the buffer of an unindexed watcher at present. */
    readonly maxBatches: number;
  };
  /** The coalesced backlogs of unsynced LATEST_STATE watchers. */
  readonly coalescing: CoalescingStats;
  /** Number of lists with chunks that are cached or in the making. */
  readonly cachedLists: number;
  /** Memory bytes of the cached chunks of lists and of coalesced batches. */
  readonly chunkCacheBytes: number;
  /** The snapshots retained for future pages, and for initial states in progress. */
  readonly retainedSnapshots: RetainedStats;
  /** Number of requests that wait for the cache to reach a revision. */
  readonly waitingRequests: number;
  /** Completed comparisons of the whole cache with the store. */
  readonly consistencyChecks: number;
  /** Comparisons that found a difference. Always indicates a bug. */
  readonly inconsistencies: number;
  /** Values that the codec could not decode, counted each time one was received. */
  readonly undecodable: number;
  /** Deletions of keys that the cache did not hold. Always indicates a bug. */
  readonly unknownDeletes: number;
}
