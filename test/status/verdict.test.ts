import { describe, expect, test } from "vitest";
import { type VerdictFacts, verdictOf } from "../../src/cli/status/verdict.ts";
import type {
  ProcessReport,
  ResourceReport,
  StreamCounts,
} from "../../src/server/admin/status/status.ts";

const at = "2026-11-24T03:12:00.000Z";

function resource(name: string, upstream: Partial<ResourceReport["upstream"]> = {}) {
  return {
    ...{ name, isCached: true, isReady: true, revision: 10, lagRevisions: 0, objects: 1 },
    upstream: {
      ...{ state: "connected" as const, lastReceivedAt: at, reconnects: 0, relists: 0 },
      ...upstream,
    },
  };
}

function process(facts: Partial<ProcessReport> = {}): ProcessReport {
  return { worker: 0, isReady: true, hasResponded: true, restarts: 0, ...facts };
}

function streams(total: number, behind: number): StreamCounts {
  return {
    ...{ at, total, byState: {}, behind, groups: [], otherGroups: 0, otherStreams: 0 },
    behindSince: behind === 0 ? undefined : "2026-11-24T03:10:48.000Z",
    worstLagRevisions: 12_345,
  };
}

/** The facts of a service that is well, with some replaced. */
function facts(some: Partial<VerdictFacts> = {}): VerdictFacts {
  return {
    at,
    service: { instance: "a.1", version: "1", node: "24", startedAt: at, isReady: true },
    checks: [{ name: "serving", failure: undefined }],
    resources: [resource("default"), resource("jobs")],
    rates: {
      ...{ overSeconds: 1, eventsReceivedPerSecond: 0, eventsDispatchedPerSecond: 0 },
      ...{ rpcsPerSecond: 0, messagesSentPerSecond: 0, bytesSentPerSecond: 0 },
      refusedPerSecond: {},
    },
    upstream: { kind: "etcd", addresses: ["http://10.0.0.1:2379"] },
    isStoreFull: false,
    etcdApiOutage: undefined,
    calls: { ended: 100, failed: {} },
    certificates: [],
    processes: [process()],
    streamCounts: streams(847, 0),
    ...some,
  };
}

const lineOf = (some: Partial<VerdictFacts>): string => {
  const { level, summary } = verdictOf(facts(some));
  return `${level}: ${summary}`;
};

describe("The verdict", () => {
  test("needs attention before the file of the embedded store is full", () => {
    const file = (bytes: number) => ({
      ...{ path: "store.db", bytes, maxBytes: 1_000 * 2 ** 20, revision: 2, oldestRevision: 1 },
      commits: 1,
    });
    const upstream = (bytes: number) => ({ kind: "embedded", file: file(bytes) }) as const;
    expect(lineOf({ upstream: upstream(800 * 2 ** 20) })).toMatch(/^ok:/);
    expect(lineOf({ upstream: upstream(900 * 2 ** 20) })).toBe(
      "degraded: the file of the embedded store is nearly full: 900 MiB of 1000 MiB",
    );
    expect(lineOf({ upstream: upstream(900 * 2 ** 20), isStoreFull: true })).toBe(
      "failing: the embedded store is full and refuses writes",
    );
  });

  test("is ok with what is served", () => {
    expect(verdictOf(facts())).toEqual({
      ...{ level: "ok", reasons: [] },
      summary: "847 open streams, none behind; 2 resources of etcd at http://10.0.0.1:2379",
    });
    expect(lineOf({ streamCounts: streams(847, 40) })).toMatch(/^ok: 847 open streams, 40 behind;/);
    expect(lineOf({ streamCounts: undefined })).toMatch(/^ok: 2 resources of etcd/);
  });

  test("names a dead etcd, since when, and how many resources are stale", () => {
    const error = "The etcd at 10.0.0.1:2379 failed:\nconnect ECONNREFUSED. ";
    const failingSince = "2026-11-24T03:07:48.000Z";
    // The store was quiet before.
    const dead = { state: "disconnected" as const, error, failingSince, staleSeconds: 300 };
    const verdict = verdictOf(facts({ resources: [resource("a", dead), resource("b", dead)] }));
    expect(verdict.summary).toBe(
      "etcd at http://10.0.0.1:2379 can't be reached, 2 of 2 resources are served stale from the cache, " +
        "since 2026-11-24 03:07:48 UTC (4m12s)",
    );
    expect(verdict.reasons).toEqual([
      expect.objectContaining({
        ...{ level: "failing", since: "2026-11-24T03:07:48.000Z" },
        detail: "The etcd at 10.0.0.1:2379 failed: connect ECONNREFUSED",
      }),
    ]);
    expect(lineOf({ resources: [resource("a", dead), resource("b")] })).toContain(
      "the resource a is served stale",
    );
  });

  test("does not call it a failure that the store was away for less than 5 s", () => {
    const brief = (seconds: number) => {
      const failingSince = new Date(Date.parse(at) - seconds * 1_000).toISOString();
      return { resources: [resource("a", { error: "gone", failingSince, staleSeconds: 60 })] };
    };
    expect(lineOf(brief(4.9))).toMatch(/^degraded: etcd at \S+ can't be reached/);
    expect(lineOf(brief(5))).toMatch(/^failing: etcd at \S+ can't be reached/);
  });

  test("is degraded where etcd serves the calls for a cache that is not permitted", () => {
    const checks = [
      { name: "serving", failure: undefined },
      { name: "resource/a", failure: undefined, warning: "etcd serves these keys" },
    ];
    const denied = { ...resource("a", { error: "permission denied" }), isReady: false };
    expect(verdictOf(facts({ checks, resources: [denied] }))).toMatchObject({
      level: "degraded",
      summary: "the resource a is not cached: etcd at http://10.0.0.1:2379 serves each call itself",
      reasons: [{ detail: "permission denied" }],
    });
  });

  test("knows by the etcd API that etcd is dead where no cache does", () => {
    const outage = (forMs: number) => ({ etcdApiOutage: { forMs, why: "connect ECONNREFUSED" } });
    const { upstream: _, ...cacheless } = resource("a");
    const uncached = { ...cacheless, isCached: false };
    expect(verdictOf(facts({ resources: [uncached], ...outage(65_000) }))).toMatchObject({
      level: "failing",
      summary:
        "etcd at http://10.0.0.1:2379 can't be reached by calls of the etcd API, since 2026-11-24 03:10:55 UTC (1m5s)",
      reasons: [{ detail: "connect ECONNREFUSED" }],
    });
    expect(lineOf(outage(4_999))).toMatch(/^degraded/);
    const dead = resource("a", { error: "gone", failingSince: at, staleSeconds: 9 });
    expect(verdictOf(facts({ resources: [dead], ...outage(9_000) })).reasons).toHaveLength(1);
  });

  test("says that the store is full", () => {
    expect(lineOf({ isStoreFull: true })).toBe(
      "failing: etcd at http://10.0.0.1:2379 is full and refuses writes",
    );
  });

  test("is never ok while a check of /readyz fails, whatever it is", () => {
    const checks = [{ name: "disk", failure: "it is full." }];
    expect(verdictOf(facts({ checks }))).toMatchObject({
      ...{ level: "failing", summary: "disk is not ready", reasons: [{ detail: "it is full" }] },
    });
    const unready = [{ name: "worker/2", failure: "the worker is starting" }];
    const processes = [process({ worker: 1 }), process({ worker: 2, isReady: false })];
    expect(lineOf({ checks: unready, processes })).toBe("failing: worker 2 is not well");
  });

  test("counts calls that failed: some are well, a twentieth needs attention, most of them are a failure", () => {
    const line = (ended: number, failed: Record<string, number>) =>
      lineOf({ calls: { ended, failed } });
    expect(line(0, {})).toMatch(/^ok/);
    expect(line(2, { UNAVAILABLE: 2 })).toMatch(/^ok/);
    expect(line(1_000, { UNAVAILABLE: 49 })).toMatch(/^ok/);
    expect(line(1_000, { INTERNAL: 1, UNAVAILABLE: 49 })).toBe(
      "degraded: 50 of 1,000 calls in the last minute failed: UNAVAILABLE, INTERNAL",
    );
    expect(line(9, { UNAVAILABLE: 9 })).toMatch(/^degraded: 9 of 9 calls/);
    expect(line(20, { UNAVAILABLE: 10 })).toMatch(/^failing: 10 of 20 calls/);
  });

  test("says of a relay that its upstream has lost its own store", () => {
    const upstream = { kind: "watch-fanout", addresses: ["r:1"], inUse: ["r:1"] } as const;
    expect(lineOf({ upstream, resources: [resource("a", { staleSeconds: 10 })] })).toBe(
      "failing: the upstream at r:1 can't reach its own store, the resource a is served stale from the cache, " +
        "since 2026-11-24 03:11:50 UTC (10s)",
    );
  });

  test("names resources that have not synced, and a service that does not serve", () => {
    const waiting = { ...resource("jobs", { error: "no route" }), isReady: false };
    const verdict = verdictOf(facts({ resources: [resource("default"), waiting] }));
    expect(verdict).toMatchObject({
      level: "failing",
      summary: "the resource jobs is not served: not synced with etcd at http://10.0.0.1:2379",
      reasons: [{ detail: "no route" }],
    });
    const checks = [{ name: "serving", failure: "the service is shutting down" }];
    expect(lineOf({ checks })).toBe("failing: the service is shutting down");
  });

  test("counts streams that are behind: a few are well, a twentieth needs attention, most of them are a failure", () => {
    expect(lineOf({ streamCounts: streams(847, 42) })).toMatch(/^ok/);
    expect(lineOf({ streamCounts: streams(847, 43) })).toMatch(/^degraded: 43 of 847 streams are/);
    expect(lineOf({ streamCounts: streams(847, 846) })).toBe(
      "failing: 846 of 847 streams are behind, the worst by 12,345 revisions, since 2026-11-24 03:10:48 UTC (1m12s)",
    );
    expect(lineOf({ streamCounts: streams(1, 1) })).toMatch(/^degraded: 1 of 1 stream is behind/);
  });

  test("names workers that are not well, and fails if none serves", () => {
    const checks = [{ name: "worker/2", failure: undefined, warning: "the worker has ended" }];
    const dead = process({ worker: 2, isReady: false, hasResponded: false });
    const verdict = verdictOf(facts({ checks, processes: [process({ worker: 1 }), dead] }));
    expect(verdict).toMatchObject({
      ...{ level: "degraded", summary: "worker 2 is not well" },
      reasons: [{ detail: "the worker has ended" }],
    });
    expect(lineOf({ processes: [{ ...dead, worker: 1 }, dead] })).toBe(
      "failing: 2 of 2 workers are not well",
    );
  });

  test("compares memory with its ceiling, of the process that is nearest to it", () => {
    const memory = { limit: "heap", usedBytes: 800 * 2 ** 20, ceilingBytes: 2 ** 30 };
    const normal = process({ worker: 1, memory: { ...memory, pressure: "normal" } });
    expect(lineOf({ processes: [normal] })).toMatch(/^ok/);
    const near = { ...memory, usedBytes: 900 * 2 ** 20, pressure: "normal" };
    expect(lineOf({ processes: [normal, process({ worker: 2, memory: near })] })).toBe(
      "degraded: memory is near its ceiling: 900 MiB of 1.0 GiB (heap of worker 2)",
    );
    expect(lineOf({ processes: [process({ memory: { ...near, pressure: "elevated" } })] })).toMatch(
      /^degraded: memory pressure is elevated and load is shed: 900 MiB/,
    );
    const mainProcess = process({ isMain: true, memory: { ...near, pressure: "exhausted" } });
    expect(lineOf({ processes: [normal], mainProcess })).toMatch(
      /^failing: memory is exhausted and all calls are refused: 900 MiB of 1.0 GiB \(heap of the main process\)/,
    );
  });

  test("names an event loop that is held up, and refusals", () => {
    const held = { p99Ms: 312.4, maxMs: 1_204 };
    expect(lineOf({ processes: [process({ eventLoopDelay: { ...held, p99Ms: 250 } })] })).toMatch(
      /^ok/,
    );
    expect(lineOf({ processes: [process({ eventLoopDelay: held })] })).toBe(
      "degraded: the event loop is held up: p99 312 ms, at most 1.20 s in the last minute",
    );
    const { rates } = facts();
    expect(lineOf({ rates: { ...rates, refusedPerSecond: { streams: 0.5, memory: 12 } } })).toBe(
      "degraded: 13 calls per second are refused by limits: memory, streams",
    );
    expect(lineOf({ rates: { ...rates, refusedPerSecond: { streams: 1 } } })).toMatch(/^ok/);
  });

  test("warns of certificates 14 days before they expire", () => {
    let notBefore = "2026-01-01T00:00:00.000Z";
    const one = (notAfter: string, kind = "server-certificate") => ({
      certificates: [{ kind, file: "tls.crt", subject: "CN=wf", notBefore, notAfter }],
    });
    expect(lineOf(one("2026-12-08T03:12:00.000Z"))).toMatch(/^ok/);
    expect(lineOf(one("2026-12-07T03:12:00.000Z"))).toBe(
      "degraded: the certificate tls.crt (CN=wf) expires in 13d0h",
    );
    const expired = "2026-11-24T03:11:00.000Z";
    const text =
      "the certificate tls.crt (CN=wf) has expired, since 2026-11-24 03:11:00 UTC (1m0s)";
    expect(lineOf(one(expired))).toBe(`failing: ${text}`);
    expect(lineOf(one(expired, "etcd-certificate"))).toBe(`failing: ${text}`);
    expect(lineOf(one(expired, "client-ca"))).toBe(`degraded: ${text}`);
    expect(lineOf(one(expired, "admin-certificate"))).toBe(`degraded: ${text}`);
    notBefore = "2026-11-24T04:12:00.000Z";
    expect(lineOf(one("2027-11-24T03:12:00.000Z"))).toBe(
      "failing: the certificate tls.crt (CN=wf) is not valid yet, for 1h0m",
    );
  });

  test("has the worst first, and says how many problems there are besides", () => {
    const stale = resource("a", { error: "gone", staleSeconds: 5 });
    const held = process({ eventLoopDelay: { p99Ms: 300, maxMs: 300 } });
    const verdict = verdictOf(
      facts({ resources: [stale], processes: [held], streamCounts: streams(100, 90) }),
    );
    expect(verdict.reasons.map(({ level }) => level)).toEqual(["failing", "failing", "degraded"]);
    expect(verdict.summary).toMatch(/\(5s\); 2 more problems$/);
  });

  test("is one line of bounded length, whatever an error says", () => {
    const error = "x\n".repeat(10_000);
    const verdict = verdictOf(facts({ resources: [resource("a", { error, staleSeconds: 3 })] }));
    expect(verdict.reasons[0]?.detail?.length).toBeLessThanOrEqual(300);
    expect(JSON.stringify(verdict)).not.toContain("\\n");
  });
});
