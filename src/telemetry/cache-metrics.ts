import type { Meter, Observable } from "@opentelemetry/api";
import { backfillStates, type CacherStats } from "../cacher/stats.ts";

/** What metrics read of a Cacher. */
export interface StatsSource {
  stats(): CacherStats;
}

/** One number of a Cacher. The name is that of Prometheus, with its unit at the end. */
interface CacheMetric {
  readonly name: string;
  readonly kind: "gauge" | "counter";
  /** As in UCUM: `s`, `By`, `{event}`. */
  readonly unit: string;
  readonly description: string;
  readonly read: (stats: CacherStats) => number;
}

const cacheMetrics: readonly CacheMetric[] = [
  {
    name: "watch_fanout_cache_ready",
    kind: "gauge",
    unit: "1",
    description: "1 once the cache has been level with the store, 0 before.",
    read: (stats) => (stats.ready ? 1 : 0),
  },
  {
    name: "watch_fanout_cache_revision",
    kind: "gauge",
    unit: "{revision}",
    description: "Everything up to and including this revision of the store is in the cache.",
    read: (stats) => stats.revision,
  },
  {
    name: "watch_fanout_cache_lag_revisions",
    kind: "gauge",
    unit: "{revision}",
    description: "How far the cache is behind the newest revision that the store is known to have.",
    read: (stats) => stats.upstreamRevision - stats.revision,
  },
  {
    name: "watch_fanout_upstream_silence_seconds",
    kind: "gauge",
    unit: "s",
    description: "Time since anything came from the store: events, progress or a listing.",
    read: (stats) => stats.upstreamSilenceMs / 1_000,
  },
  {
    name: "watch_fanout_cache_objects",
    kind: "gauge",
    unit: "{object}",
    description: "Objects in the cache.",
    read: (stats) => stats.objects,
  },
  {
    name: "watch_fanout_cache_object_bytes",
    kind: "gauge",
    unit: "By",
    description: "What the objects in the cache take, as bounds count it.",
    read: (stats) => stats.objectBytes,
  },
  {
    name: "watch_fanout_event_window_events",
    kind: "gauge",
    unit: "{event}",
    description: "Events in the event window.",
    read: (stats) => stats.eventWindow.events,
  },
  {
    name: "watch_fanout_event_window_bytes",
    kind: "gauge",
    unit: "By",
    description: "What the events in the event window take, as bounds count it.",
    read: (stats) => stats.eventWindow.bytes,
  },
  {
    name: "watch_fanout_event_window_oldest_age_seconds",
    kind: "gauge",
    unit: "s",
    description: "Age of the oldest event in the event window, 0 if there is none.",
    read: (stats) => stats.eventWindow.oldestAgeMs / 1_000,
  },
  {
    name: "watch_fanout_event_window_oldest_revision",
    kind: "gauge",
    unit: "{revision}",
    description: "The smallest revision that a watch can be resumed from.",
    read: (stats) => stats.eventWindow.oldestRevision,
  },
  {
    name: "watch_fanout_event_window_backfill_revisions",
    kind: "gauge",
    unit: "{revision}",
    description: "Revisions from before the start that the event window has been filled with.",
    read: (stats) => stats.backfill.revisions,
  },
  {
    name: "watch_fanout_event_window_backfill_events",
    kind: "gauge",
    unit: "{event}",
    description: "Events from before the start that the event window has been filled with.",
    read: (stats) => stats.backfill.events,
  },
  {
    name: "watch_fanout_event_window_backfill_waiting_streams",
    kind: "gauge",
    unit: "{stream}",
    description: "Streams that wait for a part of the event window that is still to be filled.",
    read: (stats) => stats.backfill.waiting,
  },
  {
    name: "watch_fanout_watcher_buffer_batches",
    kind: "gauge",
    unit: "{batch}",
    description: "Batches that wait in the inputs of all watchers.",
    read: (stats) => stats.buffers.batches,
  },
  {
    name: "watch_fanout_watcher_buffer_bytes",
    kind: "gauge",
    unit: "By",
    description: "Bytes that wait in the inputs of all watchers; shared ones count for each.",
    read: (stats) => stats.buffers.bytes,
  },
  {
    name: "watch_fanout_watcher_buffer_fullest_ratio",
    kind: "gauge",
    unit: "1",
    description: "How full the fullest watcher's input is, from 0 to 1.",
    read: (stats) => stats.buffers.fullest,
  },
  {
    name: "watch_fanout_watcher_buffer_max_batches",
    kind: "gauge",
    unit: "{batch}",
    description: "Batches that a watcher's input may hold now, where no index narrows its stream.",
    read: (stats) => stats.buffers.maxBatches,
  },
  {
    name: "watch_fanout_watcher_filters",
    kind: "gauge",
    unit: "{filter}",
    description: "Different filters of all watchers; those who ask for the same share one.",
    read: (stats) => stats.filters,
  },
  {
    name: "watch_fanout_coalesced_backlogs",
    kind: "gauge",
    unit: "{backlog}",
    description: "Folds held for LATEST_STATE watchers that are behind; shared ones count once.",
    read: (stats) => stats.coalescing.held,
  },
  {
    name: "watch_fanout_coalesced_objects",
    kind: "gauge",
    unit: "{object}",
    description: "Objects in all folds that are held.",
    read: (stats) => stats.coalescing.objects,
  },
  {
    name: "watch_fanout_coalesced_bytes",
    kind: "gauge",
    unit: "By",
    description: "What the folds that are held take, as bounds count it.",
    read: (stats) => stats.coalescing.bytes,
  },
  {
    name: "watch_fanout_coalesced_batches_delivered",
    kind: "counter",
    unit: "{backlog}",
    description: "Folds that were sent, counted once for each watcher.",
    read: (stats) => stats.coalescing.delivered,
  },
  {
    name: "watch_fanout_coalescing_ended_streams",
    kind: "counter",
    unit: "{stream}",
    description: "LATEST_STATE streams that were ended, as all folds together took too much.",
    read: (stats) => stats.coalescing.ended,
  },
  {
    name: "watch_fanout_cached_lists",
    kind: "gauge",
    unit: "{list}",
    description: "Lists of which chunks are kept, for pages and initial states that share them.",
    read: (stats) => stats.cachedLists,
  },
  {
    name: "watch_fanout_chunk_cache_bytes",
    kind: "gauge",
    unit: "By",
    description:
      "What chunks of lists and folds that are kept to be shared take, with their frames.",
    read: (stats) => stats.chunkCacheBytes,
  },
  {
    name: "watch_fanout_retained_snapshots",
    kind: "gauge",
    unit: "{state}",
    description: "Old states that are kept for pages to come, or as streams begin with them.",
    read: (stats) => stats.retainedSnapshots.snapshots,
  },
  {
    name: "watch_fanout_retained_snapshot_bytes",
    kind: "gauge",
    unit: "By",
    description: "What old states keep alive that the cache itself does not, at the most.",
    read: (stats) => stats.retainedSnapshots.bytes,
  },
  {
    name: "watch_fanout_cache_waiting_requests",
    kind: "gauge",
    unit: "{request}",
    description: "Requests that wait for the cache to reach a revision.",
    read: (stats) => stats.waitingRequests,
  },
  {
    name: "watch_fanout_events_received",
    kind: "counter",
    unit: "{event}",
    description: "Events received from the store.",
    read: (stats) => stats.receivedEvents,
  },
  {
    name: "watch_fanout_events_dispatched",
    kind: "counter",
    unit: "{event}",
    description: "Events put into watchers' inputs, counted once for each watcher.",
    read: (stats) => stats.dispatchedEvents,
  },
  {
    name: "watch_fanout_batches_dispatched",
    kind: "counter",
    unit: "{batch}",
    description: "Batches put into watchers' inputs, counted once for each watcher.",
    read: (stats) => stats.dispatchedBatches,
  },
  {
    name: "watch_fanout_slow_consumers",
    kind: "counter",
    unit: "{stream}",
    description: "Streams that were ended for not keeping up.",
    read: (stats) => stats.slowConsumers,
  },
  {
    name: "watch_fanout_upstream_reconnects",
    kind: "counter",
    unit: "{reconnect}",
    description: "Times that the watch on the store broke and was taken up again.",
    read: (stats) => stats.reconnects,
  },
  {
    name: "watch_fanout_upstream_relists",
    kind: "counter",
    unit: "{relist}",
    description: "Times that the state had to be listed anew after the first time.",
    read: (stats) => stats.relists,
  },
  {
    name: "watch_fanout_consistency_checks",
    kind: "counter",
    unit: "{check}",
    description: "Comparisons of the whole cache with the store.",
    read: (stats) => stats.consistencyChecks,
  },
  {
    name: "watch_fanout_inconsistencies",
    kind: "counter",
    unit: "{difference}",
    description: "Comparisons that found cache and store to differ, which is never right.",
    read: (stats) => stats.inconsistencies,
  },
  {
    name: "watch_fanout_unknown_deletes",
    kind: "counter",
    unit: "{event}",
    description: "Deletions of keys that the cache did not have, which is never right.",
    read: (stats) => stats.unknownDeletes,
  },
];

/**
 * Registers the metrics of all caches, by the resource's name. The caches count plain numbers, which
 * are read once per collection: nothing here is called for an event.
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
  const fills = meter.createObservableGauge("watch_fanout_event_window_backfill", {
    unit: "1",
    description:
      "1 for the state that the filling of the event window is in: filling, or how it ended; 0 for all others.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      for (const [resource, cache] of caches) {
        const stats = cache.stats();
        for (const { metric, instrument } of observed) {
          result.observe(instrument, metric.read(stats), { resource });
        }
        for (const state of backfillStates) {
          result.observe(fills, stats.backfill.state === state ? 1 : 0, { resource, state });
        }
        for (const [state, count] of Object.entries(stats.watchers)) {
          result.observe(watchers, count, { resource, state: state.replaceAll(" ", "_") });
        }
      }
    },
    [...observed.map(({ instrument }) => instrument), watchers, fills],
  );
}

/** What a storage leaves out of its resource. */
export interface SkippedKeysSource {
  /** How often a key came by that can't be part of the resource. */
  readonly skippedKeys: number;
}

/** Registers what storages leave out, by the resource's name. */
export function registerSkippedKeys(
  meter: Meter,
  storages: ReadonlyMap<string, SkippedKeysSource>,
): void {
  meter
    .createObservableCounter("watch_fanout_skipped_keys", {
      unit: "{key}",
      description:
        "Times that a key came by which can't be served: it is not UTF-8, or the prefix itself.",
    })
    .addCallback((result) => {
      for (const [resource, { skippedKeys }] of storages) result.observe(skippedKeys, { resource });
    });
}

/** What reads the attributes of a resource's objects. */
export interface UndecodableSource {
  /** How many values could not be decoded. */
  readonly undecodable: number;
}

/** Registers what could not be decoded, by the resource's name, whether it has a cache or not. */
export function registerUndecodableValues(
  meter: Meter,
  readers: ReadonlyMap<string, UndecodableSource>,
): void {
  meter
    .createObservableCounter("watch_fanout_undecodable_values", {
      unit: "{value}",
      description:
        "Values that the resource's codec could not decode: they have no labels and fields.",
    })
    .addCallback((result) => {
      for (const [resource, { undecodable }] of readers) result.observe(undecodable, { resource });
    });
}

function instrument(meter: Meter, { kind, name, unit, description }: CacheMetric): Observable {
  return kind === "counter"
    ? meter.createObservableCounter(name, { unit, description })
    : meter.createObservableGauge(name, { unit, description });
}
