import { describe, expect, it } from "vitest";
import { turnMs } from "../../src/base/event-loop-turns.ts";
import { SharedWork, type TimeSlicedWork, TimeSliceScheduler } from "../../src/base/time-slices.ts";
import { WorkClock } from "../work-clock.ts";

function work(
  clock: WorkClock,
  name: string,
  steps: number,
  log: string[],
): TimeSlicedWork<string> {
  return (function* () {
    for (let i = 0; i < steps; i++) {
      if (i > 0) yield;
      clock.spend(0.5);
      log.push(name);
    }
    return name;
  })();
}

describe("TimeSliceScheduler", () => {
  it("finishes work that fits the slice at once", async () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const done = new TimeSliceScheduler(clock).run({}, work(clock, "a", 4, log));
    expect(log).toHaveLength(4);
    expect(await done).toBe("a");
  });

  it("yields to the event loop after one slice, and continues in the next turn", async () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const done = new TimeSliceScheduler(clock).run({}, work(clock, "a", 20, log));
    expect(log).toHaveLength(turnMs / 0.5);
    clock.runImmediates();
    expect(await done).toBe("a");
    expect(log).toHaveLength(20);
  });

  it("runs the work of one owner in order, and owners in rotation", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const log: string[] = [];
    const greedy = {};
    for (let i = 0; i < 100; i++) void scheduler.run(greedy, work(clock, `greedy-${i}`, 10, log));
    const modest = scheduler.run({}, work(clock, "modest", 2, log));
    const before = log.length;
    expect(log).not.toContain("modest");
    clock.runImmediates();
    expect(await modest).toBe("modest");
    // At most one quantum of the greedy owner came before it.
    expect(log.indexOf("modest") - before).toBeLessThanOrEqual(2);
    const order = [...new Set(log.filter((name) => name !== "modest"))];
    expect(order).toEqual(Array.from({ length: 100 }, (_, i) => `greedy-${i}`));
    expect(scheduler.size).toBe(0);
  });

  it("does no further step of aborted work, and rejects with the reason", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const log: string[] = [];
    const abort = new AbortController();
    const done = scheduler.run({}, work(clock, "a", 100, log), abort.signal);
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(done).rejects.toThrow("gone");
    expect(log).toHaveLength(turnMs / 0.5);
  });

  it("rejects with the error of the work, and continues with other work", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const log: string[] = [];
    const owner = {};
    const failing = scheduler.run(
      owner,
      // biome-ignore lint/correctness/useYield: work that fails in its first step
      (function* (): TimeSlicedWork<void> {
        throw new Error("broken");
      })(),
    );
    const next = scheduler.run(owner, work(clock, "b", 1, log));
    clock.runImmediates();
    await expect(failing).rejects.toThrow("broken");
    expect(await next).toBe("b");
  });

  it("lets aborted work clean up", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const abort = new AbortController();
    const log: string[] = [];
    const cleaning = function* (): TimeSlicedWork<void> {
      try {
        yield* work(clock, "a", 100, []);
      } finally {
        log.push("cleaned up");
      }
    };
    const done = scheduler.run({}, cleaning(), abort.signal);
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(done).rejects.toThrow("gone");
    expect(log).toEqual(["cleaned up"]);
  });

  it("refuses, above its bound, the newest task of the owner with the most tasks", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock, 10);
    const log: string[] = [];
    const greedy = {};
    const many = Array.from({ length: 10 }, (_, i) =>
      scheduler.run(greedy, work(clock, `greedy-${i}`, 20, log)),
    );
    const modest = [{}, {}].map((owner) => scheduler.run(owner, work(clock, "modest", 1, log)));
    await expect(many[9]).rejects.toMatchObject({ reason: "OVERLOADED" });
    await expect(many[8]).rejects.toMatchObject({ reason: "OVERLOADED" });
    expect([scheduler.size, scheduler.refused]).toEqual([10, 2]);
    clock.runImmediates();
    expect(await Promise.all(modest)).toEqual(["modest", "modest"]);
    expect(await Promise.all(many.slice(0, 8))).toHaveLength(8);
    expect(scheduler.size).toBe(0);
  });

  it("refuses the newest task if no owner has more than one", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock, 1);
    const first = scheduler.run({}, work(clock, "first", 20, []));
    const both = Promise.allSettled([scheduler.run({}, work(clock, "b", 1, [])), first]);
    clock.runImmediates();
    const outcomes = await both;
    expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(1);
    expect(scheduler.size).toBe(0);
  });
});

describe("Work that several tasks share", () => {
  it("is done once, by the task that has time", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const log: string[] = [];
    let isUnused = false;
    const shared = new SharedWork(work(clock, "shared", 20, log), () => {
      isUnused = true;
    });
    const greedy = {};
    for (let i = 0; i < 100; i++) void scheduler.run(greedy, work(clock, "other", 10, []));
    const first = scheduler.run(greedy, shared.join());
    const second = scheduler.run({}, shared.join());
    // Quanta alternate between the greedy owner and the other one.
    for (let turn = 0; turn < 10; turn++) clock.runTurn();
    expect(await second).toBe("shared");
    expect([log.length, isUnused]).toEqual([20, true]);
    clock.runImmediates();
    expect(await first).toBe("shared");
    expect(log).toHaveLength(20);
  });

  it("fails for all", async () => {
    const scheduler = new TimeSliceScheduler(new WorkClock());
    const shared = new SharedWork(
      // biome-ignore lint/correctness/useYield: work that fails in its first step
      (function* (): TimeSlicedWork<void> {
        throw new Error("broken");
      })(),
      () => {},
    );
    await expect(scheduler.run({}, shared.join())).rejects.toThrow("broken");
    await expect(scheduler.run({}, shared.join())).rejects.toThrow("broken");
  });

  it("continues for the other tasks when one gives up", async () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const abort = new AbortController();
    const shared = new SharedWork(work(clock, "shared", 40, []), () => {});
    const first = scheduler.run({}, shared.join(), abort.signal);
    const second = scheduler.run({}, shared.join());
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(first).rejects.toThrow("gone");
    expect(await second).toBe("shared");
  });
});
