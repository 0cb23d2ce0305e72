import type { Histogram, Meter } from "@opentelemetry/api";
import type { StageObserver } from "../cacher/options.ts";
import type { LatencyQuantiles } from "../server/admin/status/status.ts";

/** The counts of a histogram, to compute quantiles of what was recorded between two moments. */
export class LatencyBuckets {
  /** Upper boundaries of the buckets, in seconds, ascending. A last bucket has everything above. */
  readonly boundaries: readonly number[];
  readonly #counts: number[];

  constructor(boundaries: readonly number[]) {
    this.boundaries = boundaries;
    this.#counts = new Array(boundaries.length + 1).fill(0);
  }

  record(seconds: number): void {
    let i = 0;
    while (i < this.boundaries.length && seconds > (this.boundaries[i] ?? 0)) i++;
    this.#counts[i] = (this.#counts[i] ?? 0) + 1;
  }

  /** The counts so far, by bucket. */
  counts(): number[] {
    return [...this.#counts];
  }
}

/**
 * Estimates quantiles of `counts`, as Prometheus' histogram_quantile does: by linear interpolation within a bucket, and
 * the highest boundary for what is above it. Undefined if nothing was recorded.
 */
export function quantilesOf(
  boundaries: readonly number[],
  counts: readonly number[],
): LatencyQuantiles | undefined {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  const at = (quantile: number): number => {
    let below = 0;
    for (const [i, count] of counts.entries()) {
      const upper = boundaries[i];
      if (upper === undefined) break;
      if (count > 0 && below + count >= quantile * total) {
        const lower = boundaries[i - 1] ?? 0;
        return 1_000 * (lower + ((quantile * total - below) / count) * (upper - lower));
      }
      below += count;
    }
    return 1_000 * (boundaries.at(-1) ?? 0);
  };
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

/** In seconds: from a stage within one turn of the event loop to one that was held up for long. */
const latencyBoundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

const sampled = "A sample: about 100 per second.";

interface StageLatency {
  /** Returns what records the latencies of a resource. */
  readonly observerOf: (resource: string) => StageObserver;
  /** The latencies of the dispatch rounds of all resources. */
  readonly dispatchBuckets: LatencyBuckets;
}

/**
 * Registers how long events take to each of their stages in a cache: applied, dispatched, delivered. The cost of each does not
 * depend on the number of events and watchers.
 */
export function registerStageLatency(meter: Meter): StageLatency {
  const histogram = (name: string, description: string): Histogram =>
    meter.createHistogram(name, {
      ...{ unit: "s", description },
      advice: { explicitBucketBoundaries: latencyBoundaries },
    });
  const applied = histogram(
    "watch_fanout_ingest_latency_seconds",
    `Time from the arrival of events from the store until they are in the cache. ${sampled}`,
  );
  const dispatched = histogram(
    "watch_fanout_dispatch_latency_seconds",
    "Time from the arrival of events until they are in the buffers of all live watchers, of the oldest in each dispatch round.",
  );
  const delivered = histogram(
    "watch_fanout_delivery_latency_seconds",
    "Time from the arrival of an event from the store until a live watch sends it, once its client has accepted " +
      `what was sent before. ${sampled}`,
  );
  const dispatchBuckets = new LatencyBuckets(latencyBoundaries);
  const observerOf = (resource: string): StageObserver => {
    const attributes = { resource };
    return {
      applied: (latencyMs) => applied.record(latencyMs / 1_000, attributes),
      dispatched: (latencyMs) => {
        dispatched.record(latencyMs / 1_000, attributes);
        dispatchBuckets.record(latencyMs / 1_000);
      },
      delivered: (latencyMs) => delivered.record(latencyMs / 1_000, attributes),
    };
  };
  return { observerOf, dispatchBuckets };
}
