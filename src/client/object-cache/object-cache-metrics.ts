import { metrics } from "@opentelemetry/api";
import { gauge, registerMetrics } from "../../base/metric-table.ts";

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
  return registerMetrics(metrics.getMeter("watch-fanout"), () => [[cache, { resource }]], {
    watch_fanout_client_object_cache_objects: gauge(
      "{object}",
      "Keys that have a reference, including those of objects that do not exist.",
      ({ size }) => size,
    ),
    watch_fanout_client_object_cache_watches: gauge(
      "{watch}",
      "Objects that are watched: all except immutable ones.",
      ({ watching }) => watching,
    ),
  });
}
