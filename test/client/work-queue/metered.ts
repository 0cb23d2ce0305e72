import { metrics } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { onTestFinished } from "vitest";

/**
 * Sets up metrics for one test, as a user would. Returns a function that reads them: the changes since the last
 * reading, by metric name.
 */
export function setUpMetrics(): () => Promise<Record<string, unknown>> {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(provider);
  onTestFinished(async () => {
    metrics.disable();
    await provider.shutdown();
  });
  return async () => {
    exporter.reset();
    await provider.forceFlush();
    const collected = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
    return Object.fromEntries(
      collected
        .flatMap((scope) => scope.metrics)
        .map(({ descriptor, dataPoints }) => [
          descriptor.name,
          dataPoints.map(({ attributes, value }) => [
            ...Object.values(attributes),
            typeof value === "object" ? { count: value.count, sum: readSum(value) } : value,
          ]),
        ]),
    );
  };
}

function readSum(value: object): unknown {
  return "sum" in value ? value.sum : undefined;
}
