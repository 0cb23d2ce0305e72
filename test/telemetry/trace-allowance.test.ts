import { expect, test } from "vitest";
import { TraceAllowance } from "../../src/telemetry/call-tracer.ts";
import { FakeClock } from "../fake-clock.ts";

/** How many of `count` calls may be recorded. */
function taken(allowance: TraceAllowance, caller: object, count: number): number {
  return Array.from({ length: count }, () => allowance.take(caller)).filter(Boolean).length;
}

test("Calls that clients have recorded are bounded per second, of each caller and of all", () => {
  const clock = new FakeClock();
  const allowance = new TraceAllowance(clock);
  const [alice, bob] = [{}, {}];
  expect(taken(allowance, alice, 150)).toBe(100);
  expect(taken(allowance, bob, 50)).toBe(50);
  expect(allowance.refused).toBe(50);
  clock.advance(500);
  expect(taken(allowance, alice, 150)).toBe(50);
  clock.advance(10_000);
  const ofOthers = Array.from({ length: 20 }, () => taken(allowance, {}, 100));
  expect(ofOthers.reduce((sum, count) => sum + count)).toBe(1_000);
});

test("Workers, which have bounded the calls of their clients, share the bound of all", () => {
  const allowance = new TraceAllowance(new FakeClock(), true);
  expect(taken(allowance, {}, 600)).toBe(600);
  expect(taken(allowance, {}, 600)).toBe(400);
});
