import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type Reason, reasons } from "../../src/base/errors.ts";
import {
  observeCollections,
  registerEventLoopMetrics,
  registerGcMetrics,
} from "../../src/telemetry/process-metrics.ts";
import { PrometheusMetrics } from "../../src/telemetry/prometheus.ts";
import { RpcMetrics } from "../../src/telemetry/rpc-metrics.ts";
import { registerServerMetrics } from "../../src/telemetry/server-metrics.ts";
import { registerStageLatency } from "../../src/telemetry/stage-latency.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { FakeClock } from "../fake-clock.ts";
import { encode } from "../foreign/protobuf.ts";
import { framed, RawConnection } from "../server/http2/raw-connection.ts";
import { SetGauge } from "../server/pressure/set-gauge.ts";
import { serveThings } from "../server/served.ts";

test("The metrics of a server have its memory pressure, what it sheds, and what clients were stopped from", async () => {
  const gauge = new SetGauge("cgroup");
  const { server, client, clock } = await serveThings({ server: { memoryGauges: [gauge] } });
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  registerServerMetrics(metrics.meter, server);
  gauge.used = 960;
  clock.advance(250);
  await expect(client.list({ resource: "things" })).rejects.toMatchObject({ reason: "OVERLOADED" });
  const lines = new Set((await metrics.render()).split("\n"));
  for (const line of [
    'watch_fanout_memory_pressure_level{level="normal"} 0',
    'watch_fanout_memory_pressure_level{level="high"} 1',
    'watch_fanout_memory_used_bytes{limit="cgroup"} 960',
    'watch_fanout_memory_ceiling_bytes{limit="cgroup"} 1000',
    'watch_fanout_shed_calls_total{kind="list"} 1',
    'watch_fanout_shed_calls_total{kind="stream"} 0',
    'watch_fanout_http2_attacks_total{kind="rapid_reset"} 0',
    'watch_fanout_http2_attacks_total{kind="half_open"} 0',
  ]) {
    expect(lines).toContain(line);
  }
});

test("Watches that the service refuses or ends are counted by reason, and those that clients end are not", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  const observer = new RpcMetrics(metrics.meter, new FakeClock());
  const { cacher, client } = await serveThings({ server: { observer } });
  const lines = async (): Promise<readonly string[]> =>
    (await metrics.render()).split("\n").filter((line) => line.startsWith("watch_fanout_ended_"));
  const before = await lines();
  expect(before).toContain('watch_fanout_ended_watches_total{reason="RESET"} 0');
  expect(before).toHaveLength(reasons.length + 1);
  const left = client.watch({ resource: "things" });
  await left.next();
  left.cancel();
  await expect(client.watch({ resource: "none" }).next()).rejects.toThrow();
  const open = client.watch({ resource: "things" });
  await open.next();
  cacher.drain();
  await expect(open.until(() => false)).rejects.toThrow();
  expect((await lines()).filter((line) => !line.endsWith(" 0"))).toEqual([
    'watch_fanout_ended_watches_total{reason="UNKNOWN_RESOURCE"} 1',
    'watch_fanout_ended_watches_total{reason="DRAINING"} 1',
  ]);
});

test("Watches that end with their Subscribe stream are counted, each once", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  const observer = new RpcMetrics(metrics.meter, new FakeClock());
  const { server, clock, storage } = await serveThings({ server: { observer } });
  const call = new RawConnection(server.port, 1_000).open(
    "/watchfanout.v1.ListWatchService/Subscribe",
  );
  const watches = 20;
  for (let id = 1; id <= watches; id++) {
    call.stream.write(framed(encode({ 1: encode({ 1: id, 2: encode({ 1: "things" }) }) })));
  }
  await expect.poll(() => server.openStreams).toBe(1 + watches);
  // Their ends would follow what the client does not accept.
  await storage.put({ key: "a", value: Buffer.alloc(10_000) });
  await expect.poll(() => server.stats().unsent.bytes).toBeGreaterThan(10_000);
  void server.drain(60_000);
  await clock.elapse(1_000);
  await expect.poll(() => server.openStreams).toBe(0);
  expect(await metrics.render()).toContain(ended("DRAINING", watches));
});

/** The line of the metric. */
function ended(reason: Reason, count: number): string {
  return `\nwatch_fanout_ended_watches_total{reason="${reason}"} ${count}\n`;
}

test("A watch that is reset to make room for others is counted as RESET", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  const observer = new RpcMetrics(metrics.meter, new FakeClock());
  const limits = { maxUnsentBytes: 500_000 };
  const { server, storage, clock } = await serveThings({ server: { observer, limits } });
  await storage.put({ key: "larger", value: Buffer.alloc(400_000) });
  await storage.put({ key: "smaller", value: Buffer.alloc(300_000) });
  const { Watch } = listWatchService;
  const watched = (key: string): RawConnection => {
    const raw = new RawConnection(server.port, 20_000);
    onTestFinished(() => raw.session.destroy());
    const request = { resource: "things", key, send_initial_events: true };
    raw.call(Watch.path, Watch.requestSerialize(request));
    return raw;
  };
  // What was sent in part can't be taken back.
  const first = watched("larger");
  await expect.poll(() => first.session.socket.bytesRead).toBeGreaterThan(15_000);
  watched("smaller");
  // It waits for room until the other has accepted nothing for 10 s.
  await expect.poll(() => server.openStreams).toBe(2);
  clock.advance(10_000);
  await expect
    .poll(() => metrics.render())
    .toContain('\nwatch_fanout_ended_watches_total{reason="RESET"} 1\n');
});

describe("The event-loop delay", () => {
  let metrics: PrometheusMetrics;
  let clock: FakeClock;

  beforeEach(() => {
    clock = new FakeClock();
    metrics = new PrometheusMetrics("1.2.3");
    onTestFinished(() => metrics.close());
    const monitor = registerEventLoopMetrics(metrics.meter, clock);
    onTestFinished(() => monitor.stop());
  });

  const max = async (): Promise<number> =>
    Number(/^watch_fanout_event_loop_delay_max_seconds (.+)$/m.exec(await metrics.render())?.[1]);

  /** Resolves when a delay has been measured. */
  async function delayed(): Promise<void> {
    const block = async (): Promise<number> => {
      const until = performance.now() + 300;
      while (performance.now() < until);
      // The timer that measures is due, and runs before this one.
      await new Promise((resolve) => setTimeout(resolve, 0));
      return max();
    };
    // The first run of the timer measures nothing.
    await expect.poll(block, { timeout: 60_000 }).toBeGreaterThan(0.2);
  }

  test("is reported to each collector", async () => {
    await delayed();
    const first = await max();
    expect(first).toBeGreaterThan(0.2);
    expect(await max()).toBeGreaterThanOrEqual(first);
  });

  test("is that of the last minute", async () => {
    await delayed();
    // The delays of this window are kept for as long as it is one of the last six.
    clock.advance(50_000);
    const kept = await max();
    expect(kept).toBeGreaterThan(0.2);
    clock.advance(10_000);
    // A busy machine may have delayed this process meanwhile: that is forgotten a minute later.
    const latest = async (): Promise<number> => {
      const seconds = await max();
      clock.advance(60_000);
      return seconds;
    };
    await expect.poll(latest).toBeLessThan(kept);
  });
});

test("The latencies of events are recorded by stage and resource, in seconds", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  const { observerOf, dispatchBuckets } = registerStageLatency(metrics.meter);
  const stages = observerOf("things");
  stages.applied?.(2);
  stages.dispatched?.(20);
  stages.delivered?.(200);
  const rendered = await metrics.render();
  const sums = [
    ...rendered.matchAll(/^watch_fanout_(\w+)_seconds_sum\{resource="things"\} (.+)$/gm),
  ];
  expect(Object.fromEntries(sums.map(([, name, sum]) => [name, Number(sum)]))).toEqual({
    ...{ ingest_latency: 0.002, dispatch_latency: 0.02, delivery_latency: 0.2 },
  });
  // The quantiles of the status are those of the dispatch.
  expect(dispatchBuckets.counts().reduce((sum, count) => sum + count, 0)).toBe(1);
});

test("Garbage collections are recorded by kind", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  onTestFinished(observeCollections(registerGcMetrics(metrics.meter)));
  let kept: unknown;
  const collections = async (): Promise<number> => {
    kept = Array.from({ length: 200_000 }, (_, i) => ({ i }));
    // They are reported in a later turn.
    await new Promise((resolve) => setImmediate(resolve));
    const count = /^watch_fanout_gc_duration_seconds_count\{kind="minor"\} (\d+)$/m;
    return Number(count.exec(await metrics.render())?.[1] ?? 0);
  };
  await expect.poll(collections, { timeout: 60_000 }).toBeGreaterThan(0);
  expect(kept).toHaveLength(200_000);
});
