import { type BatchObservableCallback, metrics } from "@opentelemetry/api";

/** What a cache tells of itself when metrics are collected. */
interface CacheNumbers {
  readonly size: number;
  readonly watching: number;
}

/**
 * Registers the metrics of a cache at the meter provider that is the global one now, and returns what removes
 * them. A collector holds on to the cache until then.
 */
export function registerObjectCacheMetrics(resource: string, cache: CacheNumbers): () => void {
  const meter = metrics.getMeter("watch-fanout");
  const objects = meter.createObservableGauge("watch_fanout_client_object_cache_objects", {
    description: "Objects that something refers to, those that do not exist included.",
    unit: "{object}",
  });
  const watches = meter.createObservableGauge("watch_fanout_client_object_cache_watches", {
    description: "Objects that are watched: all but those that are immutable.",
    unit: "{watch}",
  });
  const observables = [objects, watches];
  const observe: BatchObservableCallback = (result) => {
    result.observe(objects, cache.size, { resource });
    result.observe(watches, cache.watching, { resource });
  };
  meter.addBatchObservableCallback(observe, observables);
  return () => meter.removeBatchObservableCallback(observe, observables);
}
