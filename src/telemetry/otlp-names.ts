import type { Attributes } from "@opentelemetry/api";
import type { DataPoint, MetricData, ResourceMetrics } from "@opentelemetry/sdk-metrics";

/** A metric that OpenTelemetry's semantic conventions have: its name there, and those of its attributes. */
interface ConventionalMetric {
  readonly name: string;
  /** The convention's name of each attribute. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Attributes that all of its data points have in addition. */
  readonly constant?: Attributes;
}

/** By the name that they have for Prometheus. */
const conventional: Readonly<Record<string, ConventionalMetric>> = {
  watch_fanout_rpc_duration_seconds: {
    name: "rpc.server.call.duration",
    attributes: { method: "rpc.method", code: "rpc.status_code" },
    constant: { "rpc.system.name": "grpc" },
  },
  watch_fanout_event_loop_delay_p99_seconds: {
    ...{ name: "nodejs.eventloop.delay.p99", attributes: {} },
  },
  watch_fanout_event_loop_delay_max_seconds: {
    ...{ name: "nodejs.eventloop.delay.max", attributes: {} },
  },
  watch_fanout_gc_duration_seconds: {
    ...{ name: "v8js.gc.duration", attributes: { kind: "v8js.gc.type" } },
  },
};

/** The unit that a name ends with for Prometheus alone: by OTLP it is a field of its own. In others `bytes` is the noun. */
const unitSuffix = /_(?:seconds|ratio)$/;

/**
 * The metrics with their names by OTLP: those of the conventions where they have one, otherwise `watch_fanout.NAME` for
 * `watch_fanout_NAME` without its unit. They are made with their names for Prometheus, whose exporter adds no unit.
 */
export function withOtlpNames(metrics: ResourceMetrics): ResourceMetrics {
  return {
    ...metrics,
    scopeMetrics: metrics.scopeMetrics.map((scope) => ({
      ...scope,
      metrics: scope.metrics.map(renamed),
    })),
  };
}

function renamed(metric: MetricData): MetricData {
  const { descriptor } = metric;
  const known = conventional[descriptor.name];
  const name = known?.name ?? ownName(descriptor.name);
  const data = { ...metric, descriptor: { ...descriptor, name } };
  if (known === undefined) return data;
  const dataPoints = metric.dataPoints.map((point: DataPoint<unknown>) => ({
    ...point,
    attributes: { ...known.constant, ...renamedAttributes(point.attributes, known) },
  }));
  return { ...data, dataPoints } as MetricData;
}

function ownName(name: string): string {
  return name.replace(/^watch_fanout_/, "watch_fanout.").replace(unitSuffix, "");
}

function renamedAttributes(attributes: Attributes, { attributes: names }: ConventionalMetric) {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [names[name] ?? name, value]),
  );
}
