import type { Meter } from "@opentelemetry/api";
import { LatencyBuckets } from "./latency-buckets.ts";

/** In seconds: from a round within one turn of the event loop to one that was held up for long. */
const latencyBoundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

interface DispatchMetrics {
  /** Returns what records the latency of a resource's dispatch rounds, in milliseconds. */
  readonly recorderOf: (resource: string) => (latencyMs: number) => void;
  /** The same of all resources. */
  readonly buckets: LatencyBuckets;
}

/**
 * Registers how long events take through the dispatchers of all caches. Returns what records a round of one cache: a
 * round is recorded once, however many events it has and however many watchers they are offered to.
 */
export function registerDispatchMetrics(meter: Meter): DispatchMetrics {
  const latency = meter.createHistogram("watch_fanout_dispatch_latency_seconds", {
    unit: "s",
    description:
      "Time from the arrival of an event from the store until it is in the buffer of every live watcher that it " +
      "concerns, once per dispatch round, for its oldest event.",
    advice: { explicitBucketBoundaries: latencyBoundaries },
  });
  const buckets = new LatencyBuckets(latencyBoundaries);
  const recorderOf = (resource: string) => {
    const attributes = { resource };
    return (latencyMs: number): void => {
      latency.record(latencyMs / 1_000, attributes);
      buckets.record(latencyMs / 1_000);
    };
  };
  return { recorderOf, buckets };
}
