import type { Meter, Observable } from "@opentelemetry/api";
import { backfillStates, type CacherStats } from "../cacher/stats.ts";
import { type CacheMetric, cacheMetrics } from "./cache-metric-table.ts";

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
      "1 for the current state of the event window's backfill, 0 for the other states: running, paused, or how it ended.",
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
