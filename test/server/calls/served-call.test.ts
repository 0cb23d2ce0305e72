import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { type Clock, maxTimerMs } from "../../../src/base/clock.ts";
import type { CallRecord } from "../../../src/server/calls/audit.ts";
import type { CallSpan } from "../../../src/server/calls/call-span.ts";
import { ServedCall } from "../../../src/server/calls/served-call.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits } from "../limits/test-callers.ts";

/** A call without a carrier. */
class TestCall extends ServedCall {
  readonly connection = {};
  readonly address = "";
  readonly isClosed = false;
  override readonly ended = super.ended;
  override readonly over = super.over;
  readonly #onDeadline: () => void;

  constructor(clock: Clock, timeoutMs: number | undefined, onDeadline: () => void) {
    super({ clock, callerLimits: callerLimits(clock) }, timeoutMs);
    this.#onDeadline = onDeadline;
  }

  protected deadlinePassed(): void {
    this.#onDeadline();
  }
}

/** As timers of Node.js: the fraction of a delay is dropped, and they fire up to `earlyMs` before it has passed. */
function nodeTimersOn(clock: FakeClock, earlyMs: number): Clock {
  return {
    now: () => clock.now(),
    setTimeout: (callback, delayMs) =>
      clock.setTimeout(callback, Math.max(0, Math.trunc(delayMs) - earlyMs)),
    setImmediate: (callback) => clock.setImmediate(callback),
  };
}

describe("A call's deadline", () => {
  test.each([
    ["with a fraction of a millisecond", 999.7, 0],
    ["of less than a millisecond", 0.25, 0],
    ["whose timer fires early", 1_000, 0.9],
    ["with a fraction whose timer fires early", 999.7, 0.9],
  ])("never passes before the client's: %s", (_, timeoutMs, earlyMs) => {
    const clock = new FakeClock();
    const passed: number[] = [];
    new TestCall(nodeTimersOn(clock, earlyMs), timeoutMs, () => passed.push(clock.now()));
    clock.advance(2_000);
    expect(passed).toHaveLength(1);
    expect(passed[0]).toBeGreaterThanOrEqual(timeoutMs);
    expect(passed[0]).toBeLessThan(timeoutMs + 1.1);
  });

  test("may be as distant as a timer can be", () => {
    const clock = new FakeClock();
    const passed: number[] = [];
    new TestCall(clock, maxTimerMs, () => passed.push(clock.now()));
    clock.advance(maxTimerMs);
    expect(passed).toEqual([maxTimerMs]);
  });

  test("does not pass once the call has ended, also if its timer has fired early", () => {
    const clock = new FakeClock();
    const passed: number[] = [];
    const call = new TestCall(nodeTimersOn(clock, 0.9), 1_000, () => passed.push(clock.now()));
    clock.advance(999.5);
    call.ended(status.OK);
    clock.advance(2_000);
    expect(passed).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });
});

test("A call reports its end once, with the first status", () => {
  const clock = new FakeClock();
  const codes: string[] = [];
  const listener = <T>(name: string) =>
    ({ end: (code: status) => codes.push(`${name} ${code}`) }) as unknown as T;
  const begin = () => {
    const call = new TestCall(clock, undefined, () => {});
    call.span = listener<CallSpan>("span");
    call.record = listener<CallRecord>("record");
    return call;
  };
  const ended = begin();
  ended.ended(status.NOT_FOUND);
  ended.ended(status.OK);
  ended.over();
  expect(codes.splice(0)).toEqual([`span ${status.NOT_FOUND}`, `record ${status.NOT_FOUND}`]);
  const cancelled = begin();
  // A stream that is open has no span.
  cancelled.span = undefined;
  cancelled.over();
  cancelled.ended(status.OK);
  expect(codes).toEqual([`record ${status.CANCELLED}`]);
});
