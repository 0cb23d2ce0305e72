import { type BatchObservableCallback, metrics } from "@opentelemetry/api";

/** The numbers that are read when metrics are collected. */
interface CacheNumbers {
  readonly size: number;
  readonly watching: number;
}

/**
 * Registers the metrics of a cache at the current global meter provider. Returns a function that removes them; until
 * it is called, the meter provider references the cache.
 */
export function registerObjectCacheMetrics(resource: string, cache: CacheNumbers): () => void {
  const meter = metrics.getMeter("watch-fanout");
  const objects = meter.createObservableGauge("watch_fanout_client_object_cache_objects", {
    description: "Keys that have a reference, including those of objects that do not exist.",
    unit: "{object}",
  });
  const watches = meter.createObservableGauge("watch_fanout_client_object_cache_watches", {
    description: "Objects that are watched: all except immutable ones.",
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
