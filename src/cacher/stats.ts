import type { CoalescingStats } from "./catch-up/coalesced-backlogs.ts";
import type { Dispatcher } from "./dispatch/dispatcher.ts";
import type { WatcherState } from "./dispatch/watcher-state.ts";
import type { BackfillStats } from "./state/event-window-backfill.ts";
import type { RetainedStats } from "./state/retained-snapshots.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";

export { backfillStates } from "../reflector/backfill/window-backfill.ts";

/** What a Cacher has to say of itself, in plain numbers. Counters begin at 0 with the Cacher. */
export interface CacherStats {
  readonly ready: boolean;
  /** Everything up to and including this revision has been taken in. */
  readonly revision: number;
  /** The newest revision that the store is known to have had. */
  readonly upstreamRevision: number;
  /** Milliseconds since anything came from upstream: events, progress, a listing. */
  readonly upstreamSilenceMs: number;
  readonly objects: number;
  /** By weight. */
  readonly objectBytes: number;
  readonly eventWindow: {
    readonly events: number;
    /** By weight. */
    readonly bytes: number;
    readonly oldestAgeMs: number;
    /** The smallest revision that a watch can be resumed from. */
    readonly oldestRevision: number;
  };
  /** How the filling of history with what was before the start goes. */
  readonly backfill: BackfillStats;
  readonly watchers: Readonly<Record<Exclude<WatcherState, "ended">, number>>;
  /** How many different filters the watchers have: those who ask for the same share one. */
  readonly filters: number;
  /** What waits in the inputs of all watchers. */
  readonly buffers: {
    readonly batches: number;
    /** By weight; a batch that several watchers hold counts for each. */
    readonly bytes: number;
    /** The fullest input: 0 is empty, 1 is full, by count or by bytes. */
    readonly fullest: number;
    /** How many batches an input may hold now that no index narrows. */
    readonly maxBatches: number;
  };
  /** What LATEST_STATE watchers that are behind have folded. */
  readonly coalescing: CoalescingStats;
  /** Lists that chunks are kept or made of, and what is kept of lists and folds to be shared, in bytes. */
  readonly cachedLists: number;
  readonly chunkCacheBytes: number;
  /** Old states that are kept for pages to come, or as streams begin with them. */
  readonly retainedSnapshots: RetainedStats;
  /** Those who wait for the cache to reach a revision. */
  readonly waitingRequests: number;
  readonly receivedEvents: number;
  /** Events put into watchers' inputs, counted once for each watcher. */
  readonly dispatchedEvents: number;
  readonly dispatchedBatches: number;
  /** Streams that were ended for not keeping up. */
  readonly slowConsumers: number;
  readonly reconnects: number;
  readonly relists: number;
  /** How often the whole cache was compared with the storage. */
  readonly consistencyChecks: number;
  /** How often it was found to differ, which is never right. */
  readonly inconsistencies: number;
  /** Values that the codec could not decode, counted each time they came. */
  readonly undecodable: number;
  /** Deletions of keys that the cache did not have, which is never right. */
  readonly unknownDeletes: number;
}

/** What all watchers together have to say of themselves. */
export function watcherStats(
  all: Iterable<CacheWatcher>,
  dispatcher: Dispatcher,
): Pick<CacherStats, "watchers" | "buffers"> {
  const watchers = { starting: 0, initial: 0, "catching up": 0, live: 0, stalled: 0 };
  const maxBatches = dispatcher.bufferBounds().batches;
  const buffers = { batches: 0, bytes: 0, fullest: 0, maxBatches };
  for (const watcher of all) {
    if (watcher.state !== "ended") watchers[watcher.state]++;
    buffers.batches += watcher.buffer.length;
    buffers.bytes += watcher.buffer.bytes;
    const bounds = dispatcher.bufferBounds(watcher);
    const fullness = Math.max(
      watcher.buffer.length / bounds.batches,
      watcher.buffer.bytes / bounds.bytes,
    );
    // Fuller than full is one whose bound has become less, or that holds one large batch.
    buffers.fullest = Math.max(buffers.fullest, Math.min(1, fullness));
  }
  return { watchers, buffers };
}
