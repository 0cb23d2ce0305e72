import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Meter } from "@opentelemetry/api";

/** Interval of the timer that the delay is measured by, in milliseconds. */
const resolutionMs = 20;

/**
 * Registers how late the event loop runs a timer. The timer is native, and wakes the process 50 times per second.
 * Returns what stops it.
 */
export function registerEventLoopMetrics(meter: Meter): () => void {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  const p99 = meter.createObservableGauge("watch_fanout_event_loop_delay_p99_seconds", {
    unit: "s",
    description: "99th percentile of the event-loop delay since the metrics were last collected.",
  });
  const max = meter.createObservableGauge("watch_fanout_event_loop_delay_max_seconds", {
    unit: "s",
    description: "Largest event-loop delay since the metrics were last collected.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      result.observe(p99, delaySeconds(histogram.percentile(99)));
      result.observe(max, delaySeconds(histogram.max));
      histogram.reset();
    },
    [p99, max],
  );
  histogram.enable();
  return () => {
    histogram.disable();
  };
}

/** The histogram has the time between two runs of the timer, in nanoseconds. 0 if it has not run. */
function delaySeconds(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e9 - resolutionMs / 1_000);
}
