import { describe, expect, test } from "vitest";
import { DeepReads } from "../../src/cacher/catch-up/deep-reads.ts";
import { backfillStates, type CacherStats } from "../../src/cacher/stats.ts";
import { registerCacheMetrics } from "../../src/telemetry/cache-metrics.ts";
import { PrometheusMetrics } from "../../src/telemetry/prometheus.ts";
import { RpcMetrics } from "../../src/telemetry/rpc-metrics.ts";
import {
  registerDeepReads,
  registerReadMetrics,
  registerSkippedKeys,
  registerUndecodableValues,
} from "../../src/telemetry/storage-metrics.ts";
import { FakeClock } from "../fake-clock.ts";

const stats: CacherStats = {
  ready: true,
  revision: 100,
  upstreamRevision: 107,
  upstreamSilenceMs: 1_500,
  staleForMs: 2_500,
  objects: 3,
  objectBytes: 4_000,
  failingForMs: undefined,
  step: "watching",
  eventWindow: {
    ...{ events: 5, bytes: 6_000, oldestAgeMs: 7_250, oldestRevision: 93, newestRevision: 100 },
  },
  backfill: { state: "running", revisions: 27, events: 28, waiting: 29 },
  watchers: { starting: 1, initial: 2, "catching up": 3, live: 4, stalled: 5 },
  filters: 27,
  buffers: { batches: 8, bytes: 9_000, fullest: 0.5, maxBatches: 21 },
  coalescing: { held: 22, objects: 23, bytes: 24_000, delivered: 25, ended: 26 },
  cachedLists: 27,
  chunkCacheBytes: 28_000,
  retainedSnapshots: { snapshots: 29, bytes: 30_000 },
  waitingRequests: 10,
  receivedEvents: 11,
  dispatchedEvents: 12,
  dispatchedBatches: 13,
  slowConsumers: 14,
  reconnects: 15,
  relists: 16,
  warmStarts: 1,
  keeperFailures: 3,
  consistencyChecks: 18,
  inconsistencies: 19,
  undecodable: 20,
  unknownDeletes: 17,
};

/** The values by name with labels, without the comment lines. */
async function values(metrics: PrometheusMetrics): Promise<Record<string, string>> {
  const lines = (await metrics.render()).split("\n");
  const samples = lines.filter((line) => line !== "" && !line.startsWith("#"));
  return Object.fromEntries(
    samples.map((line) => [
      line.slice(0, line.lastIndexOf(" ")),
      line.slice(line.lastIndexOf(" ") + 1),
    ]),
  );
}

describe("the metrics of a cache", () => {
  test("have its numbers, with the resource as a label, in seconds and bytes", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    registerCacheMetrics(metrics.meter, new Map([["services", { stats: () => stats }]]));
    const of = (name: string): string => `watch_fanout_${name}{resource="services"}`;
    const watchers = (state: string): string =>
      `watch_fanout_watchers{resource="services",state="${state}"}`;
    const fill = (state: string): string =>
      `watch_fanout_event_window_backfill{resource="services",state="${state}"}`;
    expect(await values(metrics)).toEqual({
      [`watch_fanout_build_info{version="1.2.3",node="${process.version}"}`]: "1",
      [of("cache_ready")]: "1",
      [of("cache_stale_seconds")]: "2.5",
      [of("cache_revision")]: "100",
      [of("cache_lag_revisions")]: "7",
      [of("upstream_silence_seconds")]: "1.5",
      [of("cache_objects")]: "3",
      [of("cache_object_bytes")]: "4000",
      [of("event_window_events")]: "5",
      [of("event_window_bytes")]: "6000",
      [of("event_window_oldest_age_seconds")]: "7.25",
      [of("event_window_oldest_revision")]: "93",
      [of("event_window_backfill_revisions")]: "27",
      [of("event_window_backfill_events")]: "28",
      [of("event_window_backfill_waiting_streams")]: "29",
      [fill("running")]: "1",
      ...Object.fromEntries(backfillStates.slice(1).map((state) => [fill(state), "0"])),
      [watchers("starting")]: "1",
      [watchers("initial")]: "2",
      [watchers("catching_up")]: "3",
      [watchers("live")]: "4",
      [watchers("stalled")]: "5",
      [of("watcher_buffer_batches")]: "8",
      [of("watcher_buffer_bytes")]: "9000",
      [of("watcher_buffer_fullest_ratio")]: "0.5",
      [of("watcher_buffer_max_batches")]: "21",
      [of("watcher_filters")]: "27",
      [of("coalesced_backlogs")]: "22",
      [of("coalesced_objects")]: "23",
      [of("coalesced_bytes")]: "24000",
      [of("coalesced_batches_delivered_total")]: "25",
      [of("coalescing_ended_streams_total")]: "26",
      [of("cached_lists")]: "27",
      [of("chunk_cache_bytes")]: "28000",
      [of("retained_snapshots")]: "29",
      [of("retained_snapshot_bytes")]: "30000",
      [of("cache_waiting_requests")]: "10",
      [of("events_received_total")]: "11",
      [of("events_dispatched_total")]: "12",
      [of("batches_dispatched_total")]: "13",
      [of("slow_consumers_total")]: "14",
      [of("upstream_reconnects_total")]: "15",
      [of("upstream_relists_total")]: "16",
      [of("cache_warm_starts_total")]: "1",
      [of("cache_keeper_failures_total")]: "3",
      [of("consistency_checks_total")]: "18",
      [of("inconsistencies_total")]: "19",
      [of("unknown_deletes_total")]: "17",
    });
  });

  test("read the cache once per collection", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    let reads = 0;
    const read = (): CacherStats => {
      reads++;
      return stats;
    };
    registerCacheMetrics(metrics.meter, new Map([["services", { stats: read }]]));
    await metrics.render();
    await metrics.render();
    expect(reads).toBe(2);
  });

  test("exist for every cache", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    const other = { ...stats, revision: 200 };
    const caches = new Map([
      ["a", { stats: () => stats }],
      ["b", { stats: () => other }],
    ]);
    registerCacheMetrics(metrics.meter, caches);
    const found = await values(metrics);
    expect(found['watch_fanout_cache_revision{resource="a"}']).toBe("100");
    expect(found['watch_fanout_cache_revision{resource="b"}']).toBe("200");
  });

  test("have a type, a unit and a description each", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    registerCacheMetrics(metrics.meter, new Map([["services", { stats: () => stats }]]));
    const text = await metrics.render();
    expect(text).toContain("# TYPE watch_fanout_events_received_total counter\n");
    expect(text).toContain("# TYPE watch_fanout_cache_objects gauge\n");
    expect(text).toContain("# UNIT watch_fanout_event_window_bytes By\n");
    expect(text).not.toContain("description missing");
  });

  test("fail as a whole if one can't be read, instead of being wrong", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    const broken = (): CacherStats => {
      throw new Error("broken");
    };
    registerCacheMetrics(metrics.meter, new Map([["services", { stats: broken }]]));
    await expect(metrics.render()).rejects.toThrow("Some metrics could not be read.");
  });
});

test("skipped keys are counted by resource", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  const storage = { skippedKeys: 0 };
  registerSkippedKeys(metrics.meter, new Map([["services", storage]]));
  const name = 'watch_fanout_skipped_keys_total{resource="services"}';
  expect((await values(metrics))[name]).toBe("0");
  storage.skippedKeys = 3;
  expect((await values(metrics))[name]).toBe("3");
});

test("values that can't be decoded are counted by resource", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  const cached = { undecodable: 3 };
  const uncached = { undecodable: 0 };
  registerUndecodableValues(metrics.meter, new Map(Object.entries({ cached, uncached })));
  const name = "watch_fanout_undecodable_values_total";
  const of = (resource: string): string => `${name}{resource="${resource}"}`;
  expect(await values(metrics)).toMatchObject({ [of("cached")]: "3", [of("uncached")]: "0" });
  uncached.undecodable = 5;
  expect(await values(metrics)).toMatchObject({ [of("cached")]: "3", [of("uncached")]: "5" });
});

test("waiting reads are counted for all resources together", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  const upstream = { stats: () => ({ inFlight: 3, queued: 4, refused: 5 }) };
  registerReadMetrics(metrics.meter, { size: 1, refused: 2 }, upstream);
  expect(await values(metrics)).toMatchObject({
    watch_fanout_scans: "1",
    watch_fanout_scans_refused_total: "2",
    watch_fanout_upstream_reads: "3",
    watch_fanout_upstream_reads_queued: "4",
    watch_fanout_upstream_reads_refused_total: "5",
  });
});

test("watches that read from before the event window are counted, and those refused by limit", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  const clock = new FakeClock();
  const deepReads = new DeepReads(clock, { concurrent: 2, concurrentPerGroup: 1 });
  registerDeepReads(metrics.meter, deepReads);
  const { signal } = new AbortController();
  const ended: string[] = [];
  const [first, second] = [{}, {}];
  const enter = (owner: object) =>
    deepReads.enter(owner, signal, ({ reason }) => ended.push(reason));
  await enter(first);
  const refused = expect(enter(first)).rejects.toMatchObject({ reason: "RESUME_LIMITED" });
  expect(await values(metrics)).toMatchObject({
    'watch_fanout_deep_reads{state="active"}': "1",
    'watch_fanout_deep_reads{state="waiting"}': "1",
    watch_fanout_deep_reads_begun_total: "1",
  });
  await clock.elapse(10_000);
  await refused;
  await enter(second);
  const none = expect(enter({})).rejects.toMatchObject({ reason: "RESUME_LIMITED" });
  await clock.elapse(5 * 60_000);
  await none;
  expect(ended).toEqual(["RESUME_LIMITED", "RESUME_LIMITED"]);
  expect(await values(metrics)).toMatchObject({
    'watch_fanout_deep_reads_refused_total{limit="concurrent"}': "1",
    'watch_fanout_deep_reads_refused_total{limit="per_identity"}': "1",
    'watch_fanout_deep_reads_refused_total{limit="time"}': "2",
    watch_fanout_deep_reads_begun_total: "2",
  });
});

describe("the metrics of calls", () => {
  const method = "watchfanout.v1.ListWatchService/Watch";

  test("count started calls, also by protocol, calls in progress and sent messages, by method", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    const calls = new RpcMetrics(metrics.meter, new FakeClock());
    calls.started(method, "grpc");
    calls.started(method, "grpc");
    calls.started("other", "connect");
    calls.sent(method, 2, 300);
    calls.sent(method, 1, 5);
    calls.ended(method, "OK", 20);
    const found = await values(metrics);
    const of = (name: string): string | undefined =>
      found[`watch_fanout_rpc_${name}{method="${method}"}`];
    expect(of("started_total")).toBe("2");
    expect(of("in_flight")).toBe("1");
    expect(of("sent_messages_total")).toBe("3");
    expect(of("sent_bytes_total")).toBe("305");
    expect(found['watch_fanout_rpc_in_flight{method="other"}']).toBe("1");
    const by = (protocol: string): string | undefined =>
      found[`watch_fanout_rpc_started_by_protocol_total{protocol="${protocol}"}`];
    expect([by("grpc"), by("connect"), by("etcd-json")]).toEqual(["2", "1", "0"]);
  });

  test("have the duration in seconds, by method and code", async () => {
    const metrics = new PrometheusMetrics("1.2.3");
    const calls = new RpcMetrics(metrics.meter, new FakeClock());
    calls.started(method, "grpc");
    calls.ended(method, "NOT_FOUND", 20);
    calls.started(method, "grpc");
    calls.ended(method, "NOT_FOUND", 7_200_000);
    const found = await values(metrics);
    const labels = `method="${method}",code="NOT_FOUND"`;
    const bucket = (le: string): string | undefined =>
      found[`watch_fanout_rpc_duration_seconds_bucket{${labels},le="${le}"}`];
    expect(found[`watch_fanout_rpc_duration_seconds_count{${labels}}`]).toBe("2");
    expect(found[`watch_fanout_rpc_duration_seconds_sum{${labels}}`]).toBe("7200.02");
    expect(bucket("0.01")).toBe("0");
    expect(bucket("0.025")).toBe("1");
    expect(bucket("3600")).toBe("1");
    expect(bucket("86400")).toBe("2");
  });
});
