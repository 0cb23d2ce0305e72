import { describe, expect, it } from "vitest";
import {
  BucketRateLimiter,
  defaultControllerRateLimiter,
  ItemExponentialFailureRateLimiter,
  MaxOfRateLimiter,
  type RateLimiter,
} from "../../../src/client/work-queue/rate-limiter.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";

function delays(limiter: RateLimiter, item: unknown, count: number): number[] {
  return Array.from({ length: count }, () => limiter.when(item));
}

describe("The exponential limiter", () => {
  it("doubles an item's delay with each of its failures, up to the longest", () => {
    const limiter = new ItemExponentialFailureRateLimiter(5, 100);
    expect(delays(limiter, "a", 7)).toEqual([5, 10, 20, 40, 80, 100, 100]);
  });

  it("stays at the longest however often an item fails", () => {
    const limiter = new ItemExponentialFailureRateLimiter(5, 100);
    expect(delays(limiter, "a", 2_000).at(-1)).toBe(100);
    expect(limiter.numRequeues("a")).toBe(2_000);
  });

  it("counts each item's failures separately, from when it was last forgotten", () => {
    const limiter = new ItemExponentialFailureRateLimiter(1, 1_000);
    delays(limiter, "a", 3);
    delays(limiter, "b", 2);
    limiter.forget("a");
    expect([limiter.numRequeues("a"), limiter.numRequeues("b")]).toEqual([0, 2]);
    expect([limiter.when("a"), limiter.when("b")]).toEqual([1, 4]);
  });
});

describe("The exponential limiter's table", () => {
  it("is bounded: the item whose last failure is the oldest is forgotten", () => {
    const limiter = new ItemExponentialFailureRateLimiter(5, 1_000, 3);
    for (const item of ["a", "b", "c", "a"]) limiter.when(item);
    limiter.when("d");
    expect(["a", "b", "c", "d"].map((item) => limiter.numRequeues(item))).toEqual([2, 0, 1, 1]);
    expect(limiter.when("b")).toBe(5);
  });

  it("has by default the capacity of a work queue", () => {
    const limiter = new ItemExponentialFailureRateLimiter(5, 1_000);
    for (let item = 0; item <= 1_000_000; item++) limiter.when(item);
    expect([0, 1, 1_000_000].map((item) => limiter.numRequeues(item))).toEqual([0, 1, 1]);
  });

  it.each([0, -1, Number.NaN])("can't have %s items", (maxItems) => {
    expect(() => new ItemExponentialFailureRateLimiter(5, 1_000, maxItems)).toThrow(/maxItems/);
  });
});

describe("The token bucket", () => {
  it("lets a burst through without a delay, and then one item per interval, whichever it is", () => {
    const limiter = new BucketRateLimiter({ perSecond: 10, burst: 3, clock: new FakeClock() });
    expect(["a", "b", "a", "a", "b"].map((item) => limiter.when(item))).toEqual([
      0, 0, 0, 100, 200,
    ]);
  });

  it("fills while idle, up to the burst", () => {
    const clock = new FakeClock();
    const limiter = new BucketRateLimiter({ perSecond: 10, burst: 3, clock });
    delays(limiter, "a", 4);
    clock.advance(250);
    expect(delays(limiter, "a", 2)).toEqual([0, 50]);
    clock.advance(1_000_000);
    expect(delays(limiter, "a", 4)).toEqual([0, 0, 0, 100]);
  });

  it("equals a model that counts tokens", () => {
    const bucket = fc.record({
      intervalMs: fc.constantFrom(1, 2, 5, 50, 250),
      burst: fc.integer({ min: 1, max: 9 }),
    });
    const pauses = fc.array(fc.nat(400), { maxLength: 60 });
    fc.assert(
      fc.property(bucket, pauses, ({ intervalMs, burst }, waits) => {
        const clock = new FakeClock();
        const limiter = new BucketRateLimiter({ perSecond: 1_000 / intervalMs, burst, clock });
        // In thousandths of the time that one token takes: whole numbers. Below 0 is a debt.
        let tokens = burst * intervalMs;
        for (const wait of waits) {
          clock.advance(wait);
          tokens = Math.min(burst * intervalMs, tokens + wait) - intervalMs;
          expect(limiter.when("a")).toBeCloseTo(Math.max(0, -tokens), 6);
        }
      }),
    );
  });

  it("does not distinguish items", () => {
    const limiter = new BucketRateLimiter({ perSecond: 1, burst: 1, clock: new FakeClock() });
    delays(limiter, "a", 3);
    limiter.forget("a");
    expect(limiter.numRequeues("a")).toBe(0);
    expect(limiter.when("a")).toBe(3_000);
  });
});

describe("Several limiters as one", () => {
  it("delay by the longest, count by the largest, and forget together", () => {
    const clock = new FakeClock();
    const limiter = new MaxOfRateLimiter(
      new ItemExponentialFailureRateLimiter(30, 1_000),
      new BucketRateLimiter({ perSecond: 10, burst: 2, clock }),
    );
    expect(delays(limiter, "a", 4)).toEqual([30, 60, 120, 240]);
    expect(limiter.when("b")).toBe(300);
    expect(limiter.numRequeues("a")).toBe(4);
    limiter.forget("a");
    expect(limiter.numRequeues("a")).toBe(0);
    expect(limiter.when("a")).toBe(400);
  });

  it("without any have no delay", () => {
    const limiter = new MaxOfRateLimiter();
    expect([limiter.when("a"), limiter.numRequeues("a")]).toEqual([0, 0]);
  });

  it("are by default 5 ms doubling to 1,000 s an item, and 10 a second with 100 at once", () => {
    const limiter = defaultControllerRateLimiter(new FakeClock());
    expect(delays(limiter, "a", 20).slice(-3)).toEqual([655_360, 1_000_000, 1_000_000]);
    const others = Array.from({ length: 82 }, (_, item) => limiter.when(item));
    expect(others.slice(-3)).toEqual([5, 100, 200]);
  });
});

it.each([
  ["a base delay of 0", () => new ItemExponentialFailureRateLimiter(0, 1)],
  [
    "a longest delay of Infinity",
    () => new ItemExponentialFailureRateLimiter(1, Number.POSITIVE_INFINITY),
  ],
  ["a rate of 0", () => new BucketRateLimiter({ perSecond: 0, burst: 1 })],
  ["a rate of NaN", () => new BucketRateLimiter({ perSecond: Number.NaN, burst: 1 })],
  ["a burst below 1", () => new BucketRateLimiter({ perSecond: 1, burst: 0.5 })],
])("A limiter refuses %s", (_what, make) => {
  expect(make).toThrow(expect.objectContaining({ reason: "INVALID_REQUEST" }));
});
