import type { Meter, Observable } from "@opentelemetry/api";
import { backfillStates, type CacherStats } from "../cacher/stats.ts";

/** What metrics read of a Cacher. */
export interface StatsSource {
  stats(): CacherStats;
}

/**
 * Registers the metrics of all caches, by resource. The caches count plain numbers, which are read once per
 * collection, so an event costs no call here.
 */
export function registerCacheMetrics(meter: Meter, caches: ReadonlyMap<string, StatsSource>): void {
  const observed = cacheMetrics.map((metric) => ({
    metric,
    instrument: instrument(meter, metric),
  }));
  const watchers = meter.createObservableGauge("watch_fanout_watchers", {
    unit: "{watcher}",
    description: "Watchers by state.",
  });
  const backfill = meter.createObservableGauge("watch_fanout_event_window_backfill", {
    unit: "1",
    description:
      "1 for the state of the event window's backfill: running, paused, or how it ended.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      for (const [resource, cache] of caches) {
        const stats = cache.stats();
        for (const { metric, instrument } of observed) {
          result.observe(instrument, metric.read(stats), { resource });
        }
        for (const state of backfillStates) {
          result.observe(backfill, stats.backfill.state === state ? 1 : 0, { resource, state });
        }
        for (const [state, count] of Object.entries(stats.watchers)) {
          result.observe(watchers, count, { resource, state: state.replaceAll(" ", "_") });
        }
      }
    },
    [...observed.map(({ instrument }) => instrument), watchers, backfill],
  );
}

function instrument(meter: Meter, { kind, name, unit, description }: CacheMetric): Observable {
  return kind === "counter"
    ? meter.createObservableCounter(name, { unit, description })
    : meter.createObservableGauge(name, { unit, description });
}

/** One number of a Cacher, as a metric. */
interface CacheMetric {
  readonly kind: "gauge" | "counter";
  /** Prometheus' name, with its unit at the end. */
  readonly name: string;
  /** In UCUM notation: `s`, `By`, `{event}`. */
  readonly unit: string;
  readonly description: string;
  readonly read: (stats: CacherStats) => number;
}

/** All numbers of a Cacher. */
const cacheMetrics: readonly CacheMetric[] = [
  // The cache's state, its event window, its reads, and its connection to the store.
  gauge(
    "watch_fanout_cache_ready",
    "1",
    "1 once the cache has synced with the store, 0 before.",
    (stats) => (stats.ready ? 1 : 0),
  ),
  gauge(
    "watch_fanout_cache_revision",
    "{revision}",
    "Newest revision of the store that the cache has applied completely.",
    (stats) => stats.revision,
  ),
  gauge(
    "watch_fanout_cache_lag_revisions",
    "{revision}",
    "Difference between the store's newest known revision and the cache's.",
    (stats) => stats.upstreamRevision - stats.revision,
  ),
  gauge(
    "watch_fanout_upstream_silence_seconds",
    "s",
    "Time since the cache last received events, progress or a list from the store.",
    (stats) => stats.upstreamSilenceMs / 1_000,
  ),
  gauge(
    "watch_fanout_cache_stale_seconds",
    "s",
    "How old the cache may be while the store, or what an upstream follows, can't be reached; otherwise 0.",
    (stats) => stats.staleForMs / 1_000,
  ),
  gauge(
    "watch_fanout_cache_objects",
    "{object}",
    "Objects in the cache.",
    (stats) => stats.objects,
  ),
  gauge(
    "watch_fanout_cache_object_bytes",
    "By",
    "Estimated size of the objects in the cache.",
    (stats) => stats.objectBytes,
  ),
  gauge(
    "watch_fanout_event_window_events",
    "{event}",
    "Events in the event window.",
    (stats) => stats.eventWindow.events,
  ),
  gauge(
    "watch_fanout_event_window_bytes",
    "By",
    "Estimated size of the events in the event window.",
    (stats) => stats.eventWindow.bytes,
  ),
  gauge(
    "watch_fanout_event_window_oldest_age_seconds",
    "s",
    "Age of the oldest event in the event window, 0 if the window is empty.",
    (stats) => stats.eventWindow.oldestAgeMs / 1_000,
  ),
  gauge(
    "watch_fanout_event_window_oldest_revision",
    "{revision}",
    "Smallest revision that a watch can resume from.",
    (stats) => stats.eventWindow.oldestRevision,
  ),
  gauge(
    "watch_fanout_event_window_backfill_revisions",
    "{revision}",
    "Revisions from before the start that backfill has added to the event window.",
    (stats) => stats.backfill.revisions,
  ),
  gauge(
    "watch_fanout_event_window_backfill_events",
    "{event}",
    "Events from before the start that backfill has added to the event window.",
    (stats) => stats.backfill.events,
  ),
  gauge(
    "watch_fanout_event_window_backfill_waiting_streams",
    "{stream}",
    "Streams that wait for backfill to reach their revision.",
    (stats) => stats.backfill.waiting,
  ),
  gauge(
    "watch_fanout_cached_lists",
    "{list}",
    "Lists with chunks in the chunk cache, which pages and initial states share.",
    (stats) => stats.cachedLists,
  ),
  gauge(
    "watch_fanout_chunk_cache_bytes",
    "By",
    "Estimated size of the chunk cache: chunks of lists and coalesced batches, with their frames.",
    (stats) => stats.chunkCacheBytes,
  ),
  gauge(
    "watch_fanout_retained_snapshots",
    "{state}",
    "Old snapshots retained for further pages and for initial states.",
    (stats) => stats.retainedSnapshots.snapshots,
  ),
  gauge(
    "watch_fanout_retained_snapshot_bytes",
    "By",
    "Upper bound of the memory that old snapshots keep alive in addition to the cache.",
    (stats) => stats.retainedSnapshots.bytes,
  ),
  gauge(
    "watch_fanout_cache_waiting_requests",
    "{request}",
    "Requests that wait for the cache to reach a revision.",
    (stats) => stats.waitingRequests,
  ),
  counter(
    "watch_fanout_events_received",
    "{event}",
    "Events received from the store.",
    (stats) => stats.receivedEvents,
  ),
  counter(
    "watch_fanout_upstream_reconnects",
    "{reconnect}",
    "Times that the watch on the store broke and was resumed.",
    (stats) => stats.reconnects,
  ),
  counter(
    "watch_fanout_upstream_relists",
    "{relist}",
    "Times that the state was listed again after the first list.",
    (stats) => stats.relists,
  ),
  counter(
    "watch_fanout_consistency_checks",
    "{check}",
    "Comparisons of the whole cache with the store.",
    (stats) => stats.consistencyChecks,
  ),
  counter(
    "watch_fanout_inconsistencies",
    "{difference}",
    "Comparisons that found a difference between cache and store. Any increase indicates a bug.",
    (stats) => stats.inconsistencies,
  ),
  counter(
    "watch_fanout_unknown_deletes",
    "{event}",
    "Deletions of keys that the cache did not have. Any increase indicates a bug.",
    (stats) => stats.unknownDeletes,
  ),
  // Its watchers: their buffers, filters and coalesced backlogs, and what was dispatched to them.
  gauge(
    "watch_fanout_watcher_buffer_batches",
    "{batch}",
    "Batches in the buffers of all watchers.",
    (stats) => stats.buffers.batches,
  ),
  gauge(
    "watch_fanout_watcher_buffer_bytes",
    "By",
    "Estimated size of the batches in all watcher buffers; a shared batch counts for each buffer.",
    (stats) => stats.buffers.bytes,
  ),
  gauge(
    "watch_fanout_watcher_buffer_fullest_ratio",
    "1",
    "Fill level of the fullest watcher buffer, from 0 to 1.",
    (stats) => stats.buffers.fullest,
  ),
  gauge(
    "watch_fanout_watcher_buffer_max_batches",
    "{batch}",
    "Current capacity of an unindexed watcher's buffer, in batches.",
    (stats) => stats.buffers.maxBatches,
  ),
  gauge(
    "watch_fanout_watcher_filters",
    "{filter}",
    "Distinct filters of all watchers; watchers with the same filter share one.",
    (stats) => stats.filters,
  ),
  gauge(
    "watch_fanout_coalesced_backlogs",
    "{backlog}",
    "Coalesced backlogs held for unsynced LATEST_STATE watchers; a shared backlog counts once.",
    (stats) => stats.coalescing.held,
  ),
  gauge(
    "watch_fanout_coalesced_objects",
    "{object}",
    "Objects in all coalesced backlogs.",
    (stats) => stats.coalescing.objects,
  ),
  gauge(
    "watch_fanout_coalesced_bytes",
    "By",
    "Estimated size of all coalesced backlogs.",
    (stats) => stats.coalescing.bytes,
  ),
  counter(
    "watch_fanout_coalesced_batches_delivered",
    "{backlog}",
    "Coalesced batches delivered, counted once per watcher.",
    (stats) => stats.coalescing.delivered,
  ),
  counter(
    "watch_fanout_coalescing_ended_streams",
    "{stream}",
    "LATEST_STATE streams ended because coalesced backlogs exceeded their bound.",
    (stats) => stats.coalescing.ended,
  ),
  counter(
    "watch_fanout_events_dispatched",
    "{event}",
    "Events put into watcher buffers, counted once per watcher.",
    (stats) => stats.dispatchedEvents,
  ),
  counter(
    "watch_fanout_batches_dispatched",
    "{batch}",
    "Batches put into watcher buffers, counted once per watcher.",
    (stats) => stats.dispatchedBatches,
  ),
  counter(
    "watch_fanout_slow_consumers",
    "{stream}",
    "Streams ended because their client did not keep up.",
    (stats) => stats.slowConsumers,
  ),
];

type MetricArguments = readonly [
  name: string,
  unit: string,
  description: string,
  read: (stats: CacherStats) => number,
];

/** A number that goes up and down. */
function gauge(...[name, unit, description, read]: MetricArguments): CacheMetric {
  return { kind: "gauge", name, unit, description, read };
}

/** A number that only increases while the process runs. */
function counter(...[name, unit, description, read]: MetricArguments): CacheMetric {
  return { kind: "counter", name, unit, description, read };
}
