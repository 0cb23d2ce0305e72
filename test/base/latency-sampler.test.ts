import { expect, test } from "vitest";
import { LatencySampler } from "../../src/base/latency-sampler.ts";
import { FakeClock } from "../fake-clock.ts";

/** The latencies that are recorded of `perSecond` batches, each 7 ms old, in some seconds. */
function recorded(sampler: LatencySampler, clock: FakeClock, perSecond: number, seconds: number) {
  for (let i = 0; i < perSecond * seconds; i++) {
    clock.advance(1_000 / perSecond);
    sampler.reached(clock.now() - 7);
  }
}

test("All of few batches are recorded, and about 100 per second of many", () => {
  const clock = new FakeClock();
  const latencies: number[] = [];
  const sampler = new LatencySampler(clock, (latencyMs) => latencies.push(latencyMs));
  recorded(sampler, clock, 20, 5);
  expect(latencies).toHaveLength(100);
  expect(new Set(latencies.map(Math.round))).toEqual(new Set([7]));
  latencies.length = 0;
  recorded(sampler, clock, 50_000, 2);
  expect(latencies.length).toBeGreaterThan(100);
  expect(latencies.length).toBeLessThan(450);
  // The burst is over: a few are left out, and then none.
  recorded(sampler, clock, 10, 100);
  latencies.length = 0;
  recorded(sampler, clock, 10, 5);
  expect(latencies).toHaveLength(50);
});
