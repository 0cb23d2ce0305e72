import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { otelEnvironment } from "../../src/cli/serve/otlp.ts";
import { type CollectedMetric, Collector } from "./collector.ts";
import { clientSpan, TracedService, traced, traceId, unrecorded } from "./traced-service.ts";

const embedded = ["--resource", "all="];

async function collecting(answer?: number | "silence"): Promise<Collector> {
  const collector = await Collector.start(answer);
  onTestFinished(() => collector[Symbol.asyncDispose]());
  return collector;
}

describe("A collector that", () => {
  test("never answers delays neither calls nor, beyond its bound, the shutdown", async () => {
    const collector = await collecting("silence");
    const service = await TracedService.start(collector, embedded);
    for (let index = 0; index < 20; index++) await service.put(`${index}`, traced);
    await collector.until(() => (collector.requests > 0 ? true : undefined));
    await service.put("after", traced);
    const { code, stderr } = await service.stop();
    expect(code).toBe(0);
    // The flush ended by its own bound, before that of the shutdown.
    expect(stderr).toContain("shut down");
    expect(stderr).not.toContain("the shutdown timed out");
  });

  test("refuses what it gets is one line in the log, and the spans are counted as dropped", async () => {
    const collector = await collecting(400);
    const service = await TracedService.start(collector, embedded);
    const failed = () => /watch_fanout_dropped_spans_total\{reason="export_failed"\} (\d+)/;
    const droppedAfter = async (least: number): Promise<void> => {
      for (;;) {
        const [, dropped = "0"] = failed().exec(await service.metrics()) ?? [];
        if (Number(dropped) >= least) return;
      }
    };
    await service.put("a", traced);
    await droppedAfter(1);
    await service.put("b", traced);
    await droppedAfter(2);
    const { code, stderr } = await service.stop();
    expect(code).toBe(0);
    const lines = stderr.split("\n").filter((line) => line.includes("otlp-endpoint"));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('"what":"spans"');
    expect(lines[0]).toContain('"problem":"Bad Request"');
  });

  test("is away is no reason to fail", async () => {
    const service = await TracedService.start({ url: "http://127.0.0.1:1" }, embedded, {
      OTEL_EXPORTER_OTLP_TIMEOUT: "10",
    });
    expect((await service.put("a", traced)).code).toBe(0);
    await service.served.process.printed(/otlp-endpoint.*/);
    expect((await service.stop()).code).toBe(0);
  });

  test("answers gets what the shutdown finds, and what the environment says", async () => {
    const collector = await collecting();
    const service = await TracedService.start(collector, embedded, {
      OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=t1",
      OTEL_EXPORTER_OTLP_COMPRESSION: "gzip",
      OTEL_SERVICE_NAME: "renamed",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
    });
    await service.put("a", traced);
    await service.stop();
    expect(collector.headers[0]).toMatchObject({ "x-tenant": "t1", "content-encoding": "gzip" });
    expect(collector.spans[0]?.resource).toMatchObject({
      ...{ "service.name": "renamed", "deployment.environment.name": "test" },
    });
  });
});

describe("The environment of OpenTelemetry", () => {
  test("switches the export off with OTEL_SDK_DISABLED, which is logged", async () => {
    const collector = await collecting();
    const service = await TracedService.start(collector, embedded, { OTEL_SDK_DISABLED: "True" });
    await service.served.process.printed(/OTEL_SDK_DISABLED is true: nothing is exported/);
    await service.put("a", traced);
    await service.stop();
    expect(collector.requests).toBe(0);
  });

  test("names the collector for --otlp-endpoint env; a variable without effect is named in the log", async () => {
    const collector = await collecting();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER: "always_on" };
    const service = await TracedService.start(collector, embedded, env, "env");
    await service.served.process.printed(/"variables":"OTEL_TRACES_SAMPLER"/);
    await service.put("a", traced);
    await service.stop();
    expect(collector.spans).toHaveLength(1);
  });

  test("alone begins no export, and the log names all of it", () => {
    const env = {
      ...{ OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318", OTEL_SERVICE_NAME: "a" },
      ...{ OTEL_METRICS_EXPORTER: "", PATH: "/bin" },
    };
    expect(otelEnvironment(undefined, env)).toEqual({
      ...{ endpoint: undefined, isDisabled: false },
      ignored: ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME"],
    });
    expect(otelEnvironment("http://flag", env)).toMatchObject({
      ...{ endpoint: "http://flag", ignored: ["OTEL_EXPORTER_OTLP_ENDPOINT"] },
    });
  });

  test("has the endpoint of OpenTelemetry's SDKs by default, and is refused with another that is no URL", () => {
    expect(otelEnvironment("env", {}).endpoint).toBe("http://localhost:4318");
    const bad = { OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4318" };
    expect(() => otelEnvironment("env", bad)).toThrow("OTEL_EXPORTER_OTLP_ENDPOINT, which");
  });
});

test("metrics are exported at their interval, the same as for Prometheus", async () => {
  const collector = await collecting();
  const interval = ["--otlp-metrics-interval", "50ms"];
  const service = await TracedService.start(collector, [...embedded, ...interval]);
  await service.put("a");
  const exported = (wanted: string): Promise<CollectedMetric> =>
    collector.until(() => collector.metrics.find(({ name }) => name === wanted));
  const metric = await exported("watch_fanout.rpc_started");
  expect(metric.resource).toMatchObject({ "service.name": "watch-fanout" });
  expect(await service.metrics()).toContain("watch_fanout_rpc_started_total");
  // Those that OpenTelemetry's conventions have are named there.
  expect(await exported("rpc.server.call.duration")).toMatchObject({
    unit: "s",
    attributes: {
      "rpc.system.name": "grpc",
      "rpc.method": "watchfanout.v1.WriteService/Put",
      "rpc.status_code": "OK",
    },
  });
  for (const name of ["nodejs.eventloop.delay.p99", "nodejs.eventloop.delay.max"]) {
    expect((await exported(name)).unit).toBe("s");
  }
  const names = collector.metrics.map(({ name }) => name);
  expect(names.filter((name) => /^watch_fanout_|_(?:total|seconds)$/.test(name))).toEqual([]);
  expect(collector.spans).toEqual([]);
});

describe("The trace is in", () => {
  test("the audit lines of calls whose clients send one, with the span if that is recorded", async () => {
    const folder = await mkdtemp(join(tmpdir(), "traces-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const path = join(folder, "audit.jsonl");
    const collector = await collecting();
    const service = await TracedService.start(collector, [...embedded, "--audit-log", path]);
    await service.put("a", traced);
    await service.put("b", unrecorded);
    await service.put("c");
    await service.stop();
    const lines = readFileSync(path, "utf8").trim().split("\n");
    const [recorded, passed, none] = lines.map((line) => JSON.parse(line));
    const spanId = collector.spans[0]?.spanId;
    expect(recorded).toMatchObject({ key: "a", trace_id: traceId, span_id: spanId });
    expect(passed).toMatchObject({ key: "b", trace_id: traceId });
    expect(passed).not.toHaveProperty("span_id");
    expect(none).not.toHaveProperty("trace_id");
  });
});

test("the workers export for themselves, and the calls between the processes join their spans", async () => {
  const collector = await collecting();
  const service = await TracedService.start(collector, [...embedded, "--workers", "2"]);
  expect((await service.put("a", traced)).code).toBe(0);
  expect((await service.stop()).code).toBe(0);
  const put = "watchfanout.v1.WriteService/Put";
  const puts = collector.spans.filter(({ name }) => name === put);
  const atWorker = puts.find(({ parentId }) => parentId === clientSpan);
  const client = puts.find(({ kind }) => kind === "client");
  const atMain = puts.find(({ kind, parentId }) => kind === "server" && parentId !== clientSpan);
  expect(puts.map((span) => span.traceId)).toEqual([traceId, traceId, traceId]);
  expect(atWorker?.resource["watch_fanout.worker"]).toBeGreaterThan(0);
  expect(client?.parentId).toBe(atWorker?.spanId);
  expect(client?.attributes["rpc.status_code"]).toBe("OK");
  expect(atMain?.parentId).toBe(client?.spanId);
  expect(atMain?.resource).not.toHaveProperty("watch_fanout.worker");
});
