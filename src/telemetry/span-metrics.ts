import type { Meter } from "@opentelemetry/api";

/** Numbers of ended spans. */
export interface SpanCounts {
  /** Accepted by the collector. */
  readonly exported: number;
  /** Dropped, since too many waited. */
  readonly overflown: number;
  /** Dropped, since the collector did not accept them. */
  readonly failed: number;
}

/** The same, and the number of calls that were not recorded since their callers had too many recorded. */
interface TraceCounts extends SpanCounts {
  readonly refused: number;
}

/** Registers the outcome of the spans. */
export function registerSpanMetrics(meter: Meter, counts: () => TraceCounts): void {
  meter
    .createObservableCounter("watch_fanout_exported_spans", {
      unit: "{span}",
      description: "Spans that the collector of --otlp-endpoint has accepted.",
    })
    .addCallback((result) => result.observe(counts().exported));
  meter
    .createObservableCounter("watch_fanout_dropped_spans", {
      unit: "{span}",
      description:
        "Spans that were not exported, by reason: queue_full, since too many waited; export_failed, since the collector " +
        "did not accept them in time; client_rate, since clients recorded more calls than they may have recorded here.",
    })
    .addCallback((result) => {
      const { overflown, failed, refused } = counts();
      result.observe(overflown, { reason: "queue_full" });
      result.observe(failed, { reason: "export_failed" });
      result.observe(refused, { reason: "client_rate" });
    });
}
