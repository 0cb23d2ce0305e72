import type { Histogram, Meter } from "@opentelemetry/api";
import type { StageObserver } from "../cacher/options.ts";
import { LatencyBuckets } from "./latency-buckets.ts";

/** In seconds: from a stage within one turn of the event loop to one that was held up for long. */
const latencyBoundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

const sampled = "A sample: about 100 per second, or all if there are fewer.";

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
    "Time from the arrival of an event from the store until it is in the buffer of every live watcher that it " +
      "concerns, once per dispatch round, for its oldest event.",
  );
  const delivered = histogram(
    "watch_fanout_delivery_latency_seconds",
    "Time from the arrival of an event from the store until a live watch takes it from its buffer to send it, which " +
      `it does once its client has accepted what was sent before. ${sampled}`,
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
