import type { Meter } from "@opentelemetry/api";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";

/** Metrics for Prometheus to collect. Only what wires a whole program together makes one of these. */
export class PrometheusMetrics {
  /** What instruments are made with. */
  readonly meter: Meter;
  /** The media type of `render`'s answer. */
  readonly contentType = "text/plain; version=0.0.4; charset=utf-8";
  readonly #provider: MeterProvider;
  readonly #exporter = new PrometheusExporter({ preventServerStart: true });
  /** Without scope labels and `target_info`, which say on every line what `build_info` says once. */
  readonly #serializer = new PrometheusSerializer("", false, undefined, true, true);

  constructor(version: string) {
    this.#provider = new MeterProvider({ readers: [this.#exporter] });
    this.meter = this.#provider.getMeter("watch-fanout", version);
    this.meter
      .createObservableGauge("watch_fanout_build_info", {
        unit: "1",
        description: "Always 1. The labels say what is running.",
      })
      .addCallback((result) => result.observe(1, { version, node: process.version }));
  }

  /** All metrics as they are now. Rejects if any could not be read. */
  async render(): Promise<string> {
    const { resourceMetrics, errors } = await this.#exporter.collect();
    if (errors.length > 0) throw new AggregateError(errors, "Some metrics could not be read.");
    return this.#serializer.serialize(resourceMetrics);
  }

  /** Harmless when called twice. */
  async close(): Promise<void> {
    await this.#provider.shutdown();
  }
}
