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

/** Registers the outcome of the spans. */
export function registerSpanMetrics(meter: Meter, source: { readonly counts: SpanCounts }): void {
  meter
    .createObservableCounter("watch_fanout_exported_spans", {
      unit: "{span}",
      description: "Spans that the collector of --otlp-endpoint has accepted.",
    })
    .addCallback((result) => result.observe(source.counts.exported));
  meter
    .createObservableCounter("watch_fanout_dropped_spans", {
      unit: "{span}",
      description:
        "Spans that were not exported, by reason: queue_full, since too many waited; export_failed, since the collector " +
        "did not accept them in time.",
    })
    .addCallback((result) => {
      const { overflown, failed } = source.counts;
      result.observe(overflown, { reason: "queue_full" });
      result.observe(failed, { reason: "export_failed" });
    });
}
