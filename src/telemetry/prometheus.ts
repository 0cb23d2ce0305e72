import type { Meter } from "@opentelemetry/api";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import type { Resource } from "@opentelemetry/resources";
import { type IMetricReader, MeterProvider } from "@opentelemetry/sdk-metrics";

/** Metrics for Prometheus to collect. One per program, made where the program is wired together. */
export class PrometheusMetrics {
  /** Makes instruments. */
  readonly meter: Meter;
  /** The media type of `render`'s result. */
  readonly contentType = "text/plain; version=0.0.4; charset=utf-8";
  readonly #provider: MeterProvider;
  readonly #exporter = new PrometheusExporter({ preventServerStart: true });
  /** Without scope labels and `target_info`, which repeat on every line what `build_info` has once. */
  readonly #serializer = new PrometheusSerializer("", false, undefined, true, true);

  /** `pushed`: other readers of the same metrics, and the resource that they report. */
  constructor(
    version: string,
    pushed?: { readonly readers: readonly IMetricReader[]; readonly resource: Resource },
  ) {
    this.#provider = new MeterProvider({
      readers: [this.#exporter, ...(pushed?.readers ?? [])],
      ...(pushed === undefined ? {} : { resource: pushed.resource }),
    });
    this.meter = this.#provider.getMeter("watch-fanout", version);
    this.meter
      .createObservableGauge("watch_fanout_build_info", {
        unit: "1",
        description: "Always 1. The labels are the versions of watch-fanout and Node.js.",
      })
      .addCallback((result) => result.observe(1, { version, node: process.version }));
  }

  /** The current values of all metrics. Rejects if a metric could not be read. */
  async render(): Promise<string> {
    const { resourceMetrics, errors } = await this.#exporter.collect();
    if (errors.length > 0) throw new AggregateError(errors, "Some metrics could not be read.");
    return this.#serializer.serialize(resourceMetrics);
  }

  /** Idempotent. */
  async close(): Promise<void> {
    await this.#provider.shutdown();
  }
}
