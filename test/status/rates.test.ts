import { expect, test } from "vitest";
import { type ProcessCounts, Rates } from "../../src/cli/status/rates.ts";
import { LatencyBuckets, quantilesOf } from "../../src/telemetry/stage-latency.ts";

const boundaries = [0.001, 0.01, 0.1];

function counts(rpcs: number, latencies: readonly number[] = []): ProcessCounts {
  const buckets = new LatencyBuckets(boundaries);
  for (const seconds of latencies) buckets.record(seconds);
  const latency = { boundaries, counts: buckets.counts() };
  return {
    ...{ eventsReceived: 0, eventsDispatched: 0, messagesSent: 0, bytesSent: 0, rpcs },
    refused: { streams: rpcs },
    ...{ dispatchLatency: latency, rpcLatency: latency },
  };
}

test("Rates are averages since the time before, and first since the start.", () => {
  const rates = new Rates(0);
  expect(rates.next(new Map([["a", counts(10)]]), 5_000).rates).toMatchObject({
    overSeconds: 5,
    rpcsPerSecond: 2,
    refusedPerSecond: { streams: 2 },
  });
  expect(rates.next(new Map([["a", counts(40)]]), 7_000).rates.rpcsPerSecond).toBe(15);
});

test("A process counts from the second time it is seen on, so that one that is late shows no jump.", () => {
  const rates = new Rates(0);
  rates.next(new Map([["a", counts(0)]]), 1_000);
  const both = (b: number) =>
    new Map([
      ["a", counts(0)],
      ["b", counts(b)],
    ]);
  expect(rates.next(both(1_000), 2_000).rates.rpcsPerSecond).toBe(0);
  expect(rates.next(both(1_003), 3_000).rates.rpcsPerSecond).toBe(3);
  expect(rates.next(new Map([["a", counts(1)]]), 4_000).rates.rpcsPerSecond).toBe(1);
});

test("Latencies are those since the time before; absent if no call ended.", () => {
  const rates = new Rates(0);
  const slow = new Array<number>(100).fill(0.05);
  rates.next(new Map([["a", counts(0, slow)]]), 1_000);
  expect(rates.next(new Map([["a", counts(0, slow)]]), 2_000).latencies.rpc).toBeUndefined();
  const { rpc } = rates.next(new Map([["a", counts(0, [...slow, 0.0005])]]), 3_000).latencies;
  expect(rpc?.p99).toBeLessThanOrEqual(1);
});

test("Quantiles are interpolated within a bucket.", () => {
  expect(quantilesOf(boundaries, [50, 50, 0, 0])).toEqual({
    p50: 1,
    p90: expect.closeTo(8.2),
    p99: expect.closeTo(9.82),
  });
  expect(quantilesOf(boundaries, [0, 0, 0, 1])).toEqual({ p50: 100, p90: 100, p99: 100 });
  expect(quantilesOf(boundaries, [0, 0, 0, 0])).toBeUndefined();
});
