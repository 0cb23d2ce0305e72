import type { CacheMetric } from "./cache-metric.ts";

/** Metrics of a cache's watchers: their buffers, filters and coalesced backlogs, and what was dispatched to them. */
export const watcherMetrics: readonly CacheMetric[] = [
  {
    name: "watch_fanout_watcher_buffer_batches",
    kind: "gauge",
    unit: "{batch}",
    description: "Batches in the buffers of all watchers.",
    read: (stats) => stats.buffers.batches,
  },
  {
    name: "watch_fanout_watcher_buffer_bytes",
    kind: "gauge",
    unit: "By",
    description:
      "Estimated size of the batches in all watcher buffers; a shared batch counts for each buffer.",
    read: (stats) => stats.buffers.bytes,
  },
  {
    name: "watch_fanout_watcher_buffer_fullest_ratio",
    kind: "gauge",
    unit: "1",
    description: "Fill level of the fullest watcher buffer, from 0 to 1.",
    read: (stats) => stats.buffers.fullest,
  },
  {
    name: "watch_fanout_watcher_buffer_max_batches",
    kind: "gauge",
    unit: "{batch}",
    description: "Current capacity of an unindexed watcher's buffer, in batches.",
    read: (stats) => stats.buffers.maxBatches,
  },
  {
    name: "watch_fanout_watcher_filters",
    kind: "gauge",
    unit: "{filter}",
    description: "Distinct filters of all watchers; watchers with the same filter share one.",
    read: (stats) => stats.filters,
  },
  {
    name: "watch_fanout_coalesced_backlogs",
    kind: "gauge",
    unit: "{backlog}",
    description:
      "Coalesced backlogs held for unsynced LATEST_STATE watchers; a shared backlog counts once.",
    read: (stats) => stats.coalescing.held,
  },
  {
    name: "watch_fanout_coalesced_objects",
    kind: "gauge",
    unit: "{object}",
    description: "Objects in all coalesced backlogs.",
    read: (stats) => stats.coalescing.objects,
  },
  {
    name: "watch_fanout_coalesced_bytes",
    kind: "gauge",
    unit: "By",
    description: "Estimated size of all coalesced backlogs.",
    read: (stats) => stats.coalescing.bytes,
  },
  {
    name: "watch_fanout_coalesced_batches_delivered",
    kind: "counter",
    unit: "{backlog}",
    description: "Coalesced batches delivered, counted once per watcher.",
    read: (stats) => stats.coalescing.delivered,
  },
  {
    name: "watch_fanout_coalescing_ended_streams",
    kind: "counter",
    unit: "{stream}",
    description:
      "LATEST_STATE streams ended because all coalesced backlogs together exceeded their bound.",
    read: (stats) => stats.coalescing.ended,
  },
  {
    name: "watch_fanout_events_dispatched",
    kind: "counter",
    unit: "{event}",
    description: "Events put into watcher buffers, counted once per watcher.",
    read: (stats) => stats.dispatchedEvents,
  },
  {
    name: "watch_fanout_batches_dispatched",
    kind: "counter",
    unit: "{batch}",
    description: "Batches put into watcher buffers, counted once per watcher.",
    read: (stats) => stats.dispatchedBatches,
  },
  {
    name: "watch_fanout_slow_consumers",
    kind: "counter",
    unit: "{stream}",
    description: "Streams ended because their client did not keep up.",
    read: (stats) => stats.slowConsumers,
  },
];
