import { expect, test } from "vitest";
import { RecentCalls, sumOfCalls } from "../../src/telemetry/rpc-metrics.ts";
import { FakeClock } from "../fake-clock.ts";

test("Calls are counted for a minute, whenever they are read; only some codes are failures.", () => {
  const clock = new FakeClock();
  const calls = new RecentCalls(clock);
  for (const code of ["OK", "NOT_FOUND", "RESOURCE_EXHAUSTED", "CANCELLED"]) calls.ended(code);
  expect(calls.counts()).toEqual({ ended: 4, failed: {} });
  clock.advance(30_000);
  for (const code of ["UNAVAILABLE", "INTERNAL", "UNAVAILABLE"]) calls.ended(code);
  const failed = { UNAVAILABLE: 2, INTERNAL: 1 };
  expect(calls.counts()).toEqual({ ended: 7, failed });
  clock.advance(30_000);
  expect(calls.counts()).toEqual({ ended: 3, failed });
  expect(calls.counts()).toEqual({ ended: 3, failed });
  clock.advance(30_000);
  expect(calls.counts()).toEqual({ ended: 0, failed: {} });
});

test("Those of several processes are added.", () => {
  const one = { ended: 2, failed: { UNAVAILABLE: 1 } };
  const other = { ended: 3, failed: { UNAVAILABLE: 1, UNKNOWN: 1 } };
  expect(sumOfCalls([one, other])).toEqual({ ended: 5, failed: { UNAVAILABLE: 2, UNKNOWN: 1 } });
});
