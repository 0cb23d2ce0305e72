import type { Meter } from "@opentelemetry/api";

/** In seconds: from a round within one turn of the event loop to one that was held up for long. */
const latencyBoundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * Registers how long events take through the dispatchers of all caches. Returns what records a round of one cache: a
 * round is recorded once, however many events it has and however many watchers they are offered to.
 */
export function registerDispatchMetrics(
  meter: Meter,
): (resource: string) => (latencyMs: number) => void {
  const latency = meter.createHistogram("watch_fanout_dispatch_latency_seconds", {
    unit: "s",
    description:
      "Time from the arrival of an event from the store until it is in the buffer of every live watcher that it " +
      "concerns, once per dispatch round, for its oldest event.",
    advice: { explicitBucketBoundaries: latencyBoundaries },
  });
  return (resource) => {
    const attributes = { resource };
    return (latencyMs) => latency.record(latencyMs / 1_000, attributes);
  };
}
