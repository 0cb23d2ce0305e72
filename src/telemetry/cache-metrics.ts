import type { Meter } from "@opentelemetry/api";
import { byEach, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import { backfillStates, type CacherStats } from "../cacher/stats.ts";

/**
 * Registers the metrics of all caches, by resource. The caches count plain numbers, which are read once per
 * collection, so an event costs no call here.
 */
export function registerCacheMetrics(
  meter: Meter,
  caches: ReadonlyMap<string, { stats(): CacherStats }>,
): void {
  const stats = () =>
    Array.from(caches, ([resource, cache]) => [cache.stats(), { resource }] as const);
  registerMetrics(meter, stats, {
    // The cache's state, its event window, its reads, and its connection to the store.
    watch_fanout_cache_ready: gauge(
      "1",
      "1 once the cache has synced with the store, 0 before.",
      (stats) => (stats.ready ? 1 : 0),
    ),
    watch_fanout_cache_revision: gauge(
      "{revision}",
      "Newest revision of the store that the cache has applied completely.",
      (stats) => stats.revision,
    ),
    watch_fanout_cache_lag_revisions: gauge(
      "{revision}",
      "Difference between the store's newest known revision and the cache's.",
      (stats) => stats.upstreamRevision - stats.revision,
    ),
    watch_fanout_upstream_silence_seconds: gauge(
      "s",
      "Time since the cache last received something from the store.",
      (stats) => stats.upstreamSilenceMs / 1_000,
    ),
    watch_fanout_cache_stale_seconds: gauge(
      "s",
      "How old the cache may be while the store can't be reached; otherwise 0.",
      (stats) => stats.staleForMs / 1_000,
    ),
    watch_fanout_cache_objects: gauge(
      "{object}",
      "Objects in the cache.",
      (stats) => stats.objects,
    ),
    watch_fanout_cache_object_bytes: gauge(
      "By",
      "Estimated size of the objects in the cache.",
      (stats) => stats.objectBytes,
    ),
    watch_fanout_event_window_events: gauge(
      "{event}",
      "Events in the event window.",
      (stats) => stats.eventWindow.events,
    ),
    watch_fanout_event_window_bytes: gauge(
      "By",
      "Estimated size of the events in the event window.",
      (stats) => stats.eventWindow.bytes,
    ),
    watch_fanout_event_window_oldest_age_seconds: gauge(
      "s",
      "Age of the oldest event in the event window.",
      (stats) => stats.eventWindow.oldestAgeMs / 1_000,
    ),
    watch_fanout_event_window_oldest_revision: gauge(
      "{revision}",
      "Smallest revision that a watch can resume from.",
      (stats) => stats.eventWindow.oldestRevision,
    ),
    watch_fanout_event_window_backfill_revisions: gauge(
      "{revision}",
      "Revisions that backfill has added.",
      (stats) => stats.backfill.revisions,
    ),
    watch_fanout_event_window_backfill_events: gauge(
      "{event}",
      "Events that backfill has added.",
      (stats) => stats.backfill.events,
    ),
    watch_fanout_event_window_backfill_waiting_streams: gauge(
      "{stream}",
      "Streams that wait for backfill to reach their revision.",
      (stats) => stats.backfill.waiting,
    ),
    watch_fanout_cached_lists: gauge(
      "{list}",
      "Lists with chunks in the chunk cache.",
      (stats) => stats.cachedLists,
    ),
    watch_fanout_chunk_cache_bytes: gauge(
      "By",
      "Estimated size of the chunk cache.",
      (stats) => stats.chunkCacheBytes,
    ),
    watch_fanout_retained_snapshots: gauge(
      "{state}",
      "Old snapshots retained for further pages and for initial states.",
      (stats) => stats.retainedSnapshots.snapshots,
    ),
    watch_fanout_retained_snapshot_bytes: gauge(
      "By",
      "Upper bound of the memory that old snapshots keep alive.",
      (stats) => stats.retainedSnapshots.bytes,
    ),
    watch_fanout_cache_waiting_requests: gauge(
      "{request}",
      "Requests that wait for the cache to reach a revision.",
      (stats) => stats.waitingRequests,
    ),
    watch_fanout_events_received: counter(
      "{event}",
      "Events received from the store.",
      (stats) => stats.receivedEvents,
    ),
    watch_fanout_upstream_reconnects: counter(
      "{reconnect}",
      "Times that the watch on the store broke and was resumed.",
      (stats) => stats.reconnects,
    ),
    watch_fanout_upstream_relists: counter(
      "{relist}",
      "Times that the state was listed again after the first list.",
      (stats) => stats.relists,
    ),
    watch_fanout_cache_warm_starts: counter(
      "{start}",
      "Starts of the cache from the state that an earlier process has kept in --cache-dir, without a list.",
      (stats) => stats.warmStarts,
    ),
    watch_fanout_cache_keeper_failures: counter(
      "{failure}",
      "Times that the state of the cache could not be read from or written to --cache-dir.",
      (stats) => stats.keeperFailures,
    ),
    watch_fanout_consistency_checks: counter(
      "{check}",
      "Comparisons of the whole cache with the store.",
      (stats) => stats.consistencyChecks,
    ),
    watch_fanout_inconsistencies: counter(
      "{difference}",
      "Comparisons that found a difference: a bug.",
      (stats) => stats.inconsistencies,
    ),
    watch_fanout_unknown_deletes: counter(
      "{event}",
      "Deletions of keys that the cache did not have: a bug.",
      (stats) => stats.unknownDeletes,
    ),
    // Its watchers: their buffers, filters and coalesced backlogs, and what was dispatched to them.
    watch_fanout_watcher_buffer_batches: gauge(
      "{batch}",
      "Batches in the buffers of all watchers.",
      (stats) => stats.buffers.batches,
    ),
    watch_fanout_watcher_buffer_bytes: gauge(
      "By",
      "Estimated size of the batches in all watcher buffers; a shared batch counts for each.",
      (stats) => stats.buffers.bytes,
    ),
    watch_fanout_watcher_buffer_fullest_ratio: gauge(
      "1",
      "Fill level of the fullest watcher buffer.",
      (stats) => stats.buffers.fullest,
    ),
    watch_fanout_watcher_buffer_max_batches: gauge(
      "{batch}",
      "Capacity of an unindexed watcher's buffer.",
      (stats) => stats.buffers.maxBatches,
    ),
    watch_fanout_watcher_filters: gauge(
      "{filter}",
      "Distinct filters of all watchers.",
      (stats) => stats.filters,
    ),
    watch_fanout_coalesced_backlogs: gauge(
      "{backlog}",
      "Coalesced backlogs held for unsynced LATEST_STATE watchers, shared ones once.",
      (stats) => stats.coalescing.held,
    ),
    watch_fanout_coalesced_objects: gauge(
      "{object}",
      "Objects in all coalesced backlogs.",
      (stats) => stats.coalescing.objects,
    ),
    watch_fanout_coalesced_bytes: gauge(
      "By",
      "Estimated size of all coalesced backlogs.",
      (stats) => stats.coalescing.bytes,
    ),
    watch_fanout_coalesced_batches_delivered: counter(
      "{backlog}",
      "Coalesced batches delivered, counted once per watcher.",
      (stats) => stats.coalescing.delivered,
    ),
    watch_fanout_coalescing_ended_streams: counter(
      "{stream}",
      "LATEST_STATE streams ended because coalesced backlogs exceeded their bound.",
      (stats) => stats.coalescing.ended,
    ),
    watch_fanout_events_dispatched: counter(
      "{event}",
      "Events put into watcher buffers, counted once per watcher.",
      (stats) => stats.dispatchedEvents,
    ),
    watch_fanout_batches_dispatched: counter(
      "{batch}",
      "Batches put into watcher buffers, counted once per watcher.",
      (stats) => stats.dispatchedBatches,
    ),
    watch_fanout_slow_consumers: counter(
      "{stream}",
      "Streams ended because their client did not keep up.",
      (stats) => stats.slowConsumers,
    ),
    watch_fanout_watchers: gauge("{watcher}", "Watchers by state.", ({ watchers }) =>
      byEach("state", Object.entries(watchers), ([state, count]) => [
        state.replaceAll(" ", "_"),
        count,
      ]),
    ),
    watch_fanout_event_window_backfill: gauge(
      "1",
      "1 for the state of the backfill: running, paused, or how it ended.",
      ({ backfill }) =>
        byEach("state", backfillStates, (state) => [state, Number(backfill.state === state)]),
    ),
  });
}
