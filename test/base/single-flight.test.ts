import { describe, expect, it } from "vitest";
import { SingleFlight } from "../../src/base/single-flight.ts";
import { FakeClock } from "../fake-clock.ts";

/** Checks that the test completes one by one, in the order in which they began. */
function setUp() {
  const clock = new FakeClock();
  const begun: PromiseWithResolvers<void>[] = [];
  const shared = new SingleFlight(() => {
    const check = Promise.withResolvers<void>();
    begun.push(check);
    return check.promise;
  }, clock);
  return { clock, begun, shared };
}

describe("A shared check", () => {
  it("has at most one waiting run, shared by all calls during another run", async () => {
    const { clock, begun, shared } = setUp();
    const first = shared.run();
    const others = Array.from({ length: 1_000 }, () => shared.run());
    expect(begun).toHaveLength(1);
    begun[0]?.resolve();
    await first;
    await clock.settle();
    expect(begun).toHaveLength(2);
    begun[1]?.reject(new Error("no"));
    expect(new Set((await Promise.allSettled(others)).map(({ status }) => status))).toEqual(
      new Set(["rejected"]),
    );
    expect(begun).toHaveLength(2);
    expect(clock.pendingTimers).toBe(0);
  });

  it("begins a second after the previous one if that hangs", () => {
    const { clock, begun, shared } = setUp();
    for (let i = 0; i < 10; i++) void shared.run();
    clock.advance(999);
    expect(begun).toHaveLength(1);
    clock.advance(1);
    expect(begun).toHaveLength(2);
    clock.advance(60_000);
    expect(begun).toHaveLength(2);
  });
});
