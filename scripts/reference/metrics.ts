import { metrics as globalMetrics, type Meter } from "@opentelemetry/api";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { pino } from "pino";
import { systemClock } from "../../src/base/clock.ts";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { CallFailure } from "../../src/client/calls/call-failure.ts";
import { CallTelemetry, watchOpened } from "../../src/client/calls/call-telemetry.ts";
import { ControllerMetrics } from "../../src/client/controller/controller-metrics.ts";
import { InformerMetrics } from "../../src/client/informer/informer-metrics.ts";
import { registerObjectCacheMetrics } from "../../src/client/object-cache/object-cache.ts";
import { decodeTyped } from "../../src/client/values/typed-object.ts";
import { WorkQueueMetrics } from "../../src/client/work-queue/work-queue-metrics.ts";
import { StoredObject } from "../../src/model/object.ts";
import { callerLimitNames } from "../../src/server/limits/caller-limits.ts";
import { handshakeFailures } from "../../src/server/limits/handshake-failures.ts";
import { attackKinds } from "../../src/server/limits/http2-defences.ts";
import type { Journal } from "../../src/storage/journal/journal.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { registerCacheMetrics } from "../../src/telemetry/cache-metrics.ts";
import {
  registerCertificateExpiry,
  registerFileReloads,
  registerIdentityMetrics,
  registerRightsMetrics,
} from "../../src/telemetry/identity-metrics.ts";
import { MeasuredJournal } from "../../src/telemetry/measured-journal.ts";
import { registerSpanMetrics } from "../../src/telemetry/otlp.ts";
import {
  collectionKinds,
  registerEventLoopMetrics,
  registerGcMetrics,
} from "../../src/telemetry/process-metrics.ts";
import { PrometheusMetrics } from "../../src/telemetry/prometheus.ts";
import { RpcMetrics } from "../../src/telemetry/rpc-metrics.ts";
import { registerServerMetrics } from "../../src/telemetry/server-metrics.ts";
import {
  registerEtcdApiMetrics,
  registerWorkerMetrics,
} from "../../src/telemetry/service-metrics.ts";
import { registerStageLatency } from "../../src/telemetry/stage-latency.ts";
import {
  registerDeepReads,
  registerReadMetrics,
  registerSkippedKeys,
  registerUndecodableValues,
} from "../../src/telemetry/storage-metrics.ts";
import { registerXdsMetrics } from "../../src/telemetry/xds-metrics.ts";
import { type ExposedMetric, parseExposition } from "./exposition.ts";
import { bullet, code, paragraph } from "./markdown.ts";

/** What the labels mean that their metrics and names do not explain. */
const labels: Readonly<Record<string, string>> = {
  limit:
    "of memory: `heap`, `cgroup` or `process`; of callers: the limit, such as `streams` or `send_rate`",
  method: "of the service: gRPC service and method, or `unknown`; of the client: the method alone",
  file: "kind of file, such as `server-certificate`, `client-ca`, `token-file`, `jwks` or `policy`",
  reason: "reason of the error, such as `UPSTREAM_UNAVAILABLE`, or what is listed at the metric",
  served_by: "`cache` or `etcd`",
  worker:
    "number of the worker, from 1; with `--workers` all metrics of a worker have it, and those of the main process do not",
};

/** Labels whose values are few and all present at any time, so that the page can list them. */
const listedLabels: readonly string[] = ["cause", "kind", "level", "state"];

/** The reference of all metrics, as Markdown. */
export async function metricsPage(): Promise<string> {
  const service = await serviceGroups();
  const client = await clientMetrics();
  return [
    "# Metrics",
    "## Service",
    paragraph(
      "`/metrics` of the admin port serves these for Prometheus. Counters end with `_total`; histograms are marked; all " +
        "others are gauges. A name ends with its unit: `_seconds`, `_bytes`, `_ratio` (0 to 1). Labels are in braces.",
    ),
    ...service.flatMap(([title, metrics]) => [`### ${title}`, ...entries(metrics)]),
    "## Client library",
    paragraph(
      "`watch-fanout/client` records these at the global meter provider of OpenTelemetry. Without one they cost " +
        "nothing. An exporter for Prometheus adds `_total` to the names of counters, which are marked.",
    ),
    ...entries(client),
    "## Labels",
    Object.entries(labels)
      .map(([name, meaning]) => bullet(`${code(name)}: ${meaning}.`))
      .join("\n"),
  ].join("\n\n");
}

type Group = readonly [title: string, metrics: readonly ExposedMetric[]];

async function serviceGroups(): Promise<readonly Group[]> {
  const cache = (meter: Meter): void => {
    const logger = pino({ level: "silent" });
    const storage = new MemoryStorage({ clock: systemClock });
    const cacher = new Cacher({ storage, clock: systemClock, logger, name: "a" });
    registerCacheMetrics(meter, new Map([["a", cacher]]));
    const stages = registerStageLatency(meter).observerOf("a");
    stages.applied?.(0);
    stages.dispatched?.(0);
    stages.delivered?.(0);
  };
  const values = (meter: Meter): void => {
    registerUndecodableValues(meter, new Map([["a", { undecodable: 0 }]]));
    registerSkippedKeys(meter, new Map([["a", { skippedKeys: 0 }]]));
  };
  const reads = (meter: Meter): void => {
    const upstream = { stats: () => ({ inFlight: 0, queued: 0, refused: 0 }) };
    registerReadMetrics(meter, { size: 0, refused: 0 }, upstream);
    registerDeepReads(meter, new DeepReads(systemClock));
  };
  const data = (meter: Meter): void => {
    const commit = async (): Promise<void> => {};
    const empty = { bytes: 0, revision: 1, oldest: 1, commit } as Partial<Journal> as Journal;
    void new MeasuredJournal(empty, 1, systemClock, meter, () => false).commit([]);
  };
  const held = (meter: Meter): void => {
    const pool = { bytes: 0, evictions: 0 };
    const reading = {
      limit: "heap",
      usedBytes: 0,
      ceilingBytes: 1,
      measurement: 0,
      countsGarbage: false,
    } as const;
    const shed = { stream: 0, list: 0, slow_stream: 0, call: 0 };
    const pressure = { level: "normal", readings: [reading], shed } as const;
    const pools = { requests: pool, retained: pool, unsent: pool };
    const attacks = new Map(attackKinds.map((kind) => [kind, 0]));
    const refused = new Map(callerLimitNames.map((name) => [name, 0]));
    const most = { connections: 0, streams: 0, requests: 0, leases: 0 };
    const callers = { callers: 0, most, refused, pacedStreams: 0 };
    const requests = { size: 0, queued: 0 };
    const inFlight = { reads: requests, writes: requests };
    const handshakes = new Map(handshakeFailures.map((cause) => [cause, 0]));
    const stats = {
      ...{ connections: 0, streams: 0, ...pools, pressure, attacks, callers, inFlight },
      ...{ handshakeFailures: handshakes, slowCalls: 0, fullStoreWrites: 0, isStoreFull: false },
      grantedLeases: 0,
      compression: {
        results: { compressed: 0, incompressible: 0, pressure: 0, late: 0 },
        ...{ cachedBytes: 0, sentBytes: 0, sentPlainBytes: 0 },
      },
    };
    registerServerMetrics(meter, { stats: () => stats });
  };
  const xds = (meter: Meter): void => {
    const refused = { cds: 0, eds: 0, lds: 0, rds: 0, sds: 0 };
    const followed = { names: 0, ofAll: 0 };
    const type = { type: "cds", resource: "a", served: 0, instances: undefined } as const;
    const types = [{ ...type, followed, invalid: 0, firstInvalid: [] }];
    registerXdsMetrics(meter, { report: () => ({ streams: 0, types, refusals: [], refused }) });
  };
  const rights = (meter: Meter): void => {
    const denied = { get: 0, list: 0, watch: 0, put: 0, delete: 0 };
    registerRightsMetrics(meter, { denied, revoked: 0 }, { lines: 0, dropped: 0, failures: 0 });
  };
  const calls = (meter: Meter): void => {
    const observer = new RpcMetrics(meter, systemClock);
    observer.started("a", "grpc");
    observer.ended("a", "OK", 0);
    observer.watchEnded("DRAINING");
  };
  const process = (meter: Meter): void => {
    registerEventLoopMetrics(meter, systemClock).stop();
    const collected = registerGcMetrics(meter);
    for (const kind of collectionKinds) collected(kind, 0);
  };
  const identity = (meter: Meter): void => {
    const counts = { certificate: 0, jwt: 0, token: 0, "forwarded-certificate": 0, none: 0 };
    const keys = { counts: { succeeded: 0, failed: 0 } };
    registerIdentityMetrics(meter, { counts: { ...counts, refused: 0 } }, keys);
    const dates = { subject: "", notBefore: 0, notAfter: 0 };
    const inUse = [{ kind: "server-certificate", file: "tls.crt", ...dates }];
    registerCertificateExpiry(meter, { certificates: () => inUse });
    registerFileReloads(meter, { counts: () => [{ kind: "jwks", applied: 0, refused: 0 }] });
  };
  const etcdApi = (meter: Meter): void => {
    const watches = { watches: 0, relayed: 0 };
    const ranges = { cached: 0, relayed: 0 };
    const stats = { calls: 0, connections: 0, revision: 0, watches, ranges };
    registerEtcdApiMetrics(meter, { stats: () => stats });
  };
  const spans = (meter: Meter): void => {
    registerSpanMetrics(meter, () => ({ exported: 0, overflown: 0, failed: 0, refused: 0 }));
  };
  const workers = (meter: Meter): void => {
    const stats = { worker: 1, isReady: true, isCollected: true, restarts: 0 };
    const connections = { waiting: 0, refused: 0 };
    registerWorkerMetrics(meter, { stats: () => [stats], connections });
  };
  return [
    ["Build", await exposed(() => {}, isBuildInfo)],
    ["Event loop and garbage collection", await exposed(process)],
    ["Caches, by resource", await exposed(cache)],
    ["Keys and values, by resource", await exposed(values)],
    ["Reads of all resources", await exposed(reads)],
    ["Embedded store, with --data FILE", await exposed(data)],
    ["Calls", await exposed(calls)],
    ["Identity of callers, and files", await exposed(identity)],
    ["Connections and memory held for clients", await exposed(held)],
    ["Rights and audit", await exposed(rights)],
    ["etcd API, with --etcd-api", await exposed(etcdApi)],
    ["xDS, with --xds", await exposed(xds)],
    ["Traces, with --otlp-endpoint", await exposed(spans)],
    ["Workers, with --workers", await exposed(workers)],
  ];
}

/** Every exposition of the service has this one. */
function isBuildInfo({ name }: ExposedMetric): boolean {
  return name.endsWith("_build_info");
}

/** What the service exposes of the metrics that `register` registers. */
async function exposed(
  register: (meter: Meter) => void,
  wanted: (metric: ExposedMetric) => boolean = (metric) => !isBuildInfo(metric),
): Promise<readonly ExposedMetric[]> {
  const metrics = new PrometheusMetrics("0.0.0");
  try {
    register(metrics.meter);
    return parseExposition(await metrics.render()).filter(wanted);
  } finally {
    await metrics.close();
  }
}

/** Every metric of the client, by its name in OpenTelemetry, recorded once each. */
async function clientMetrics(): Promise<readonly ExposedMetric[]> {
  const exporter = new PrometheusExporter({ preventServerStart: true });
  const provider = new MeterProvider({ readers: [exporter] });
  globalMetrics.setGlobalMeterProvider(provider);
  try {
    recordClientMetrics();
    const { resourceMetrics } = await exporter.collect();
    const text = new PrometheusSerializer("", false, undefined, true, true).serialize(
      resourceMetrics,
    );
    return parseExposition(text).map((metric) => ({
      ...metric,
      name: metric.kind === "counter" ? metric.name.replace(/_total$/, "") : metric.name,
    }));
  } finally {
    globalMetrics.disable();
    await provider.shutdown();
  }
}

function recordClientMetrics(): void {
  const failure = new CallFailure(new WatchFanoutError("UPSTREAM_UNAVAILABLE", "as an example"));
  const call = new CallTelemetry(systemClock, "/a.Service/Method");
  call.attempt("a", failure);
  call.hedged("a");
  call.responded();
  watchOpened("a")(failure);
  const undecodable = {
    decode: () => {
      throw new Error("as an example");
    },
    encode: () => new Uint8Array(),
  };
  decodeTyped(new StoredObject("a", new Uint8Array(), 1, 1, 1, 0n), undecodable, "a");
  registerObjectCacheMetrics("a", { size: 0, watching: 0 });
  const handlers = [{ name: "a", pending: 0, coalescedCount: 0 }];
  const informer = new InformerMetrics("a", () => ({
    ...{ objects: 0, pendingKeys: 0, relists: 0, reconnects: 0, rejected: 0, handlers },
  }));
  informer.called("a", 0);
  const queue = new WorkQueueMetrics("a", { length: 0, runningMs: () => [] });
  queue.added();
  queue.retried();
  queue.taken(0);
  queue.done(0);
  const controller = new ControllerMetrics("a");
  for (const result of ["success", "requeue", "error"] as const) controller.reconciled(result);
  controller.waited();
}

/** A list of metrics, below the labels that all of them have. */
function entries(metrics: readonly ExposedMetric[]): readonly string[] {
  const [first, ...others] = metrics;
  const shared = [...(first?.labels.keys() ?? [])].filter(
    (label) => others.length > 0 && others.every(({ labels: its }) => its.has(label)),
  );
  return [
    ...shared.map((label) => `All have the label ${code(label)}.`),
    metrics.map((metric) => bullet(entry(metric, shared))).join("\n"),
  ];
}

function entry(metric: ExposedMetric, shared: readonly string[]): string {
  const { name, kind, unit, description } = metric;
  const own = [...metric.labels].filter(([label]) => !shared.includes(label));
  const labelled = own.length === 0 ? "" : `{${own.map(([label]) => label).join(",")}}`;
  const listed = own
    .filter(([label]) => listedLabels.includes(label))
    .filter(([, values]) => [...values].some((value) => !description.includes(value)))
    .map(([label, values]) => ` ${code(label)}: ${[...values].map(code).join(", ")}.`);
  const hasUnit = unit !== "s" || name.endsWith("_seconds");
  const notes = [
    ...(kind === "gauge" || name.endsWith("_total") ? [] : [kind]),
    ...(hasUnit ? [] : ["seconds"]),
  ];
  const noted = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  return `${code(name + labelled)}${noted}: ${description}${listed.join("")}`;
}
