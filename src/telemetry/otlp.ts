import { randomUUID } from "node:crypto";
import {
  type Attributes,
  type Context,
  context,
  type Meter,
  propagation,
  trace,
} from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  type ExportResult,
  ExportResultCode,
  W3CTraceContextPropagator,
} from "@opentelemetry/core";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-proto";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import {
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  type DataPoint,
  type IMetricReader,
  type MetricData,
  PeriodicExportingMetricReader,
  type ResourceMetrics,
} from "@opentelemetry/sdk-metrics";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type Span,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { LineLimit } from "../base/logger.ts";
import { by, counter, registerMetrics } from "../base/metric-table.ts";
import { settledWithin } from "../base/wait.ts";
import type { CallTracer } from "../server/server.ts";
import { RpcTracer, TraceAllowance } from "./call-tracer.ts";

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
function withOtlpNames(metrics: ResourceMetrics): ResourceMetrics {
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

/** Least interval of two log lines about failed exports, in milliseconds. */
const failureLogMs = 60_000;

/**
 * Maximum number of requests to the collector at once, of each signal: one, and those of a flush. Beyond it exports fail, as
 * when the responses of the collector never end.
 */
const concurrencyLimit = 6;

/** What is exported, and where to. */
interface OtlpOptions {
  /** The base URL of the collector. */
  readonly endpoint: string;
  /** The part of the traces that begin here which is recorded, from 0 to 1. */
  readonly traceRatio: number;
  /** 0: metrics are not exported. */
  readonly metricsIntervalMs: number;
}

/** What the exporter of a process needs. */
interface OtlpDeps {
  readonly version: string;
  /** The worker's number; undefined: the main process. */
  readonly worker: number | undefined;
  /** Whether its calls come from the workers of the service. */
  readonly servesWorkers: boolean;
  /** How long `close` waits until the last spans and metrics have been exported, in milliseconds. */
  readonly flushTimeoutMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Exports spans and metrics to an OpenTelemetry collector, by OTLP over HTTP with protobuf. One per process: it sets the
 * tracer provider, propagator and context manager of the process.
 */
export class OtlpExport {
  /** Makes the server spans. */
  readonly tracer: CallTracer;
  /** What all spans and metrics of this process have. */
  readonly resource: Resource;
  /** Reads the metrics that are exported. */
  readonly readers: readonly IMetricReader[];
  readonly #flushTimeoutMs: number;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #provider: TracerProvider;
  readonly #spans: SpanExport;
  readonly #allowance: TraceAllowance;
  readonly #failureLines: LineLimit;

  constructor(options: OtlpOptions, deps: OtlpDeps) {
    const { version, worker, servesWorkers, clock, logger, flushTimeoutMs } = deps;
    this.#flushTimeoutMs = flushTimeoutMs;
    this.#clock = clock;
    this.#logger = logger;
    this.#failureLines = new LineLimit(clock, failureLogMs);
    const { endpoint, traceRatio, metricsIntervalMs } = options;
    this.resource = resourceFromAttributes({
      "service.name": "watch-fanout",
      "service.version": version,
      "service.instance.id": randomUUID(),
      ...(worker === undefined ? {} : { "watch_fanout.worker": worker }),
    }).merge(detectResources({ detectors: [envDetector] }));
    const exporter = new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, concurrencyLimit });
    this.#spans = new SpanExport(exporter, (error) => this.#failed("spans", error));
    this.#provider = new TracerProvider({
      resource: this.resource,
      sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(traceRatio) }),
      spanProcessors: [this.#spans],
    });
    this.readers =
      metricsIntervalMs === 0 ? [] : [this.#reader(`${endpoint}/v1/metrics`, metricsIntervalMs)];
    const propagator = new W3CTraceContextPropagator();
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(propagator);
    trace.setGlobalTracerProvider(this.#provider);
    this.#allowance = new TraceAllowance(clock, servesWorkers);
    const tracer = this.#provider.getTracer("watch-fanout", version);
    this.tracer = new RpcTracer(tracer, propagator, this.#allowance);
  }

  /** Call it once. */
  registerMetrics(meter: Meter): void {
    const [spans, allowance] = [this.#spans, this.#allowance];
    registerSpanMetrics(meter, () => ({ ...spans.counts, refused: allowance.refused }));
  }

  /** Exports what has not been exported yet, also by `closeMetrics`. Never rejects. */
  async close(closeMetrics: () => Promise<void>): Promise<void> {
    // Failures have been logged.
    const closed = Promise.allSettled([this.#provider.shutdown(), closeMetrics()]);
    await settledWithin(closed, this.#clock, this.#flushTimeoutMs);
    trace.disable();
    propagation.disable();
    context.disable();
  }

  #reader(url: string, intervalMs: number): IMetricReader {
    const exporter = new LoggedMetricExporter(url, (error) => this.#failed("metrics", error));
    return new PeriodicExportingMetricReader({
      exporter,
      exportIntervalMillis: intervalMs,
      exportTimeoutMillis: Math.min(exportTimeoutMs, intervalMs),
    });
  }

  /** Logs the first failure, and then at most one a minute. */
  #failed(what: "spans" | "metrics", error: Error | undefined): void {
    const suppressed = this.#failureLines.admit();
    if (suppressed === undefined) return;
    // The message alone: the error may have the collector's whole response. That of several addresses has only a code.
    const problem = error?.message || Reflect.get(error ?? {}, "code");
    const fields = { what, failures: suppressed + 1, problem };
    this.#logger.warn(fields, "an export to --otlp-endpoint has failed, and its data is dropped");
  }
}

class LoggedMetricExporter extends OTLPMetricExporter {
  readonly #onFailure: (error: Error | undefined) => void;

  constructor(url: string, onFailure: (error: Error | undefined) => void) {
    super({ url, concurrencyLimit });
    this.#onFailure = onFailure;
  }

  override export(metrics: ResourceMetrics, done: (result: ExportResult) => void): void {
    super.export(withOtlpNames(metrics), (result) => {
      if (result.code !== ExportResultCode.SUCCESS) this.#onFailure(result.error);
      done(result);
    });
  }
}

/** Numbers of ended spans. */
interface SpanCounts {
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
  registerMetrics(meter, () => [[counts()]], {
    watch_fanout_exported_spans: counter(
      "{span}",
      "Spans that the collector has accepted.",
      ({ exported }) => exported,
    ),
    watch_fanout_dropped_spans: counter(
      "{span}",
      "Spans that were not exported: queue_full, export_failed, or client_rate, since clients recorded too many calls.",
      ({ overflown, failed, refused }) =>
        by("reason", { queue_full: overflown, export_failed: failed, client_rate: refused }),
    ),
  });
}

/** Maximum number of ended spans that wait for their export. Later ones are dropped. */
const maxQueuedSpans = 2_048;
/** Maximum number of spans in one request to the collector. */
const maxBatchSpans = 512;
/** How long an ended span waits for others that are exported with it, in milliseconds. */
const batchMs = 1_000;
/** Deadline of an export with its repetitions, in milliseconds. */
export const exportTimeoutMs = 10_000;

/** Called when an export has failed. */
type OnExportFailure = (error: Error | undefined) => void;

/**
 * Exports the spans that have ended: in batches, from a bounded queue, without delay for the calls. Counts the spans that
 * it drops, for lack of room in the queue or because their export failed.
 */
export class SpanExport implements SpanProcessor {
  readonly #batches: BatchSpanProcessor;
  #queued = 0;
  #exported = 0;
  #overflown = 0;
  #failed = 0;

  constructor(exporter: SpanExporter, onFailure: OnExportFailure) {
    this.#batches = new BatchSpanProcessor({
      exporter: this.#counted(exporter, onFailure),
      maxQueueSize: maxQueuedSpans,
      maxExportBatchSize: maxBatchSpans,
      scheduledDelayMillis: batchMs,
      exportTimeoutMillis: exportTimeoutMs,
    });
  }

  /** The outcome of the spans. */
  get counts(): SpanCounts {
    return { exported: this.#exported, overflown: this.#overflown, failed: this.#failed };
  }

  onStart(span: Span, parent: Context): void {
    this.#batches.onStart(span, parent);
  }

  onEnd(span: ReadableSpan): void {
    if (this.#queued >= maxQueuedSpans) {
      this.#overflown++;
      return;
    }
    this.#queued++;
    this.#batches.onEnd(span);
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush();
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown();
  }

  #counted(exporter: SpanExporter, onFailure: OnExportFailure): SpanExporter {
    return {
      export: (spans, done) => {
        this.#queued -= spans.length;
        exporter.export(spans, (result: ExportResult) => {
          if (result.code === ExportResultCode.SUCCESS) {
            this.#exported += spans.length;
          } else {
            this.#failed += spans.length;
            onFailure(result.error);
          }
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
      forceFlush: async () => exporter.forceFlush?.(),
    };
  }
}
