import type { CacherStats } from "../cacher/stats.ts";

/** One number of a Cacher, as a metric. The name is Prometheus' name, with its unit at the end. */
export interface CacheMetric {
  readonly name: string;
  readonly kind: "gauge" | "counter";
  /** In UCUM notation: `s`, `By`, `{event}`. */
  readonly unit: string;
  readonly description: string;
  readonly read: (stats: CacherStats) => number;
}
