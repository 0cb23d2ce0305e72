import { describe, expect, it, test } from "vitest";
import { quantumMs, type TimeSlicedWork, turnMs } from "../../src/base/event-loop-turns.ts";
import { GroupedOwner } from "../../src/base/fair-queue.ts";
import { SharedWork, type Task, Turns } from "../../src/base/turns.ts";
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

describe("Turns", () => {
  it("finishes work that fits the slice at once", async () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const done = new Turns(clock).run({}, work(clock, "a", 4, log));
    expect(log).toHaveLength(4);
    expect(await done).toBe("a");
  });

  it("yields to the event loop after one slice, and continues in the next turn", async () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const done = new Turns(clock).run({}, work(clock, "a", 20, log));
    expect(log).toHaveLength(turnMs / 0.5);
    clock.runImmediates();
    expect(await done).toBe("a");
    expect(log).toHaveLength(20);
  });

  it("runs the work of one owner in order, and owners in rotation", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const greedy = {};
    for (let i = 0; i < 100; i++) void turns.run(greedy, work(clock, `greedy-${i}`, 10, log));
    const modest = turns.run({}, work(clock, "modest", 2, log));
    const before = log.length;
    expect(log).not.toContain("modest");
    clock.runImmediates();
    expect(await modest).toBe("modest");
    // At most one quantum of the greedy owner came before it.
    expect(log.indexOf("modest") - before).toBeLessThanOrEqual(2);
    const order = [...new Set(log.filter((name) => name !== "modest"))];
    expect(order).toEqual(Array.from({ length: 100 }, (_, i) => `greedy-${i}`));
    expect(turns.size).toBe(0);
  });

  it("does no further step of aborted work, and rejects with the reason", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const abort = new AbortController();
    const done = turns.run({}, work(clock, "a", 100, log), abort.signal);
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(done).rejects.toThrow("gone");
    expect(log).toHaveLength(turnMs / 0.5);
  });

  it("rejects with the error of the work, and continues with other work", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const owner = {};
    const failing = turns.run(
      owner,
      // biome-ignore lint/correctness/useYield: work that fails in its first step
      (function* (): TimeSlicedWork<void> {
        throw new Error("broken");
      })(),
    );
    const next = turns.run(owner, work(clock, "b", 1, log));
    clock.runImmediates();
    await expect(failing).rejects.toThrow("broken");
    expect(await next).toBe("b");
  });

  it("lets aborted work clean up", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const abort = new AbortController();
    const log: string[] = [];
    const cleaning = function* (): TimeSlicedWork<void> {
      try {
        yield* work(clock, "a", 100, []);
      } finally {
        log.push("cleaned up");
      }
    };
    const done = turns.run({}, cleaning(), abort.signal);
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(done).rejects.toThrow("gone");
    expect(log).toEqual(["cleaned up"]);
  });

  it("refuses, above its bound, the newest task of the owner with the most tasks", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock, 10);
    const log: string[] = [];
    const greedy = {};
    const many = Array.from({ length: 10 }, (_, i) =>
      turns.run(greedy, work(clock, `greedy-${i}`, 20, log)),
    );
    const modest = [{}, {}].map((owner) => turns.run(owner, work(clock, "modest", 1, log)));
    await expect(many[9]).rejects.toMatchObject({ reason: "OVERLOADED" });
    await expect(many[8]).rejects.toMatchObject({ reason: "OVERLOADED" });
    expect([turns.size, turns.refused]).toEqual([10, 2]);
    clock.runImmediates();
    expect(await Promise.all(modest)).toEqual(["modest", "modest"]);
    expect(await Promise.all(many.slice(0, 8))).toHaveLength(8);
    expect(turns.size).toBe(0);
  });

  it("refuses the newest task if no owner has more than one", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock, 1);
    const first = turns.run({}, work(clock, "first", 20, []));
    const both = Promise.allSettled([turns.run({}, work(clock, "b", 1, [])), first]);
    clock.runImmediates();
    const outcomes = await both;
    expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(1);
    expect(turns.size).toBe(0);
  });
});

class Member extends GroupedOwner {}

/** The owners of two groups: twenty, and one. */
function twoGroups() {
  const [many, one] = [{}, {}];
  const greedy = Array.from({ length: 20 }, () => new Member(many));
  return { greedy, modest: new Member(one) };
}

/** A task of one step of a quantum, which is logged. */
function step(clock: WorkClock, name: string, log: string[]): Task {
  return {
    step: () => {
      log.push(name);
      clock.spend(quantumMs);
      return false;
    },
  };
}

describe("Turns of callers", () => {
  test("are shared by caller: one with twenty connections delays another by one quantum", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const { greedy, modest } = twoGroups();
    const log: string[] = [];
    for (let i = 0; i < 10; i++) {
      for (const owner of greedy) void turns.run(owner, work(clock, "greedy", 1, log));
    }
    log.length = 0;
    for (let i = 0; i < 5; i++) void turns.run(modest, work(clock, "modest", 1, log));
    for (let turn = 0; turn < 4; turn++) clock.runTurn();
    expect(log.slice(0, 10).filter((name) => name === "modest")).toHaveLength(5);
  });

  test("of watches that catch up are shared by caller as well", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const { greedy, modest } = twoGroups();
    const log: string[] = [];
    for (let i = 0; i < 100; i++) turns.add(greedy[i % 20] ?? {}, step(clock, "greedy", log));
    for (let i = 0; i < 5; i++) turns.add(modest, step(clock, "modest", log));
    for (let turn = 0; turn < 4; turn++) clock.runTurn();
    expect(log.slice(0, 10).filter((name) => name === "modest")).toHaveLength(5);
  });

  test("that take little time are shared by many owners in one quantum", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const short: Task = {
      step: () => {
        log.push("short");
        clock.spend(quantumMs / 10);
        return false;
      },
    };
    for (let i = 0; i < 30; i++) turns.add({}, { ...short });
    void new Turns(clock).run({}, work(clock, "long", 20, []));
    clock.runTurn();
    clock.runTurn();
    // Two of four quanta.
    expect(log.length).toBeGreaterThanOrEqual(20);
  });
});

describe("Tasks", () => {
  test("that are started use one slice per turn, also if none was waiting", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    for (const name of ["a", "b", "c", "d", "e"]) turns.start({}, step(clock, name, log));
    expect(log).toEqual(["a", "b", "c", "d"]);
    clock.runTurn();
    expect(log).toEqual(["a", "b", "c", "d", "e"]);
    expect(turns.size).toBe(0);
  });

  test("that are added wait for a later turn, once, and not after they are deleted", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const owner = {};
    const [kept, deleted] = [step(clock, "kept", log), step(clock, "deleted", log)];
    for (const task of [kept, deleted, kept]) turns.add(owner, task);
    expect([log, turns.size]).toEqual([[], 2]);
    turns.delete(owner, deleted);
    turns.delete(owner, deleted);
    clock.runImmediates();
    expect(log).toEqual(["kept"]);
    turns.add(owner, kept);
    turns.clear();
    clock.runImmediates();
    expect([log, turns.size]).toEqual([["kept"], 0]);
  });

  test("whose step throws are done, and the others continue", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const failing: Task = {
      step: () => {
        throw new Error("A fault.");
      },
    };
    expect(() => turns.start({}, failing)).toThrow("A fault.");
    turns.add({}, failing);
    turns.add({}, step(clock, "a", log));
    expect(() => clock.runTurn()).toThrow("A fault.");
    clock.runImmediates();
    expect([log, turns.size]).toEqual([["a"], 0]);
  });

  /** Readers of one owner that record their names if there is time for them, and otherwise wait for their turn. */
  function readersOf(clock: WorkClock, turns: Turns, names: readonly string[], log: string[]) {
    const owner = {};
    return names.map((name) => ({
      notify(): void {
        if (!turns.mayBegin()) {
          turns.add(owner, this);
          return;
        }
        log.push(name);
        clock.spend(quantumMs);
      },
      step(): boolean {
        this.notify();
        return false;
      },
    }));
  }

  test("may begin without a turn while there is time in the slice, and none waits", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const readers = readersOf(clock, turns, ["a", "b", "c", "d", "e"], log);
    for (const reader of readers) reader.notify();
    expect(log).toEqual(["a", "b", "c", "d"]);
    // Another waits, so it is after that.
    readers[0]?.notify();
    clock.runImmediates();
    expect(log).toEqual(["a", "b", "c", "d", "e", "a"]);
  });

  test("that are added within their step go behind the others of their owner", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const owner = {};
    const again = (name: string, times: number): Task => ({
      step(): boolean {
        log.push(name);
        if (log.filter((each) => each === name).length < times) turns.add(owner, this);
        return false;
      },
    });
    turns.add(owner, again("a", 3));
    turns.add(owner, again("b", 2));
    clock.runImmediates();
    expect(log).toEqual(["a", "b", "a", "b", "a"]);
  });

  test("make progress however slow the clock is", () => {
    /** Each reading takes longer than a slice. */
    class SlowClock extends WorkClock {
      override now(): number {
        this.spend(10 * quantumMs);
        return super.now();
      }
    }
    const clock = new SlowClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    const step = (): boolean => {
      log.push(turns.mayBegin() ? "taken" : "refused");
      return false;
    };
    turns.add({}, { step });
    turns.add({}, { step });
    clock.runImmediates();
    expect(log).toEqual(["taken", "taken"]);
  });
});

describe("A task that is added again within its step", () => {
  /** Counts the steps of a task that adds itself in each and then calls `after`. */
  function steps(after: (turns: Turns, owner: object, task: Task) => void): number {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const owner = {};
    let count = 0;
    const task: Task = {
      step: () => {
        count++;
        if (count > 3) return false;
        turns.add(owner, task);
        after(turns, owner, task);
        return false;
      },
    };
    turns.add(owner, task);
    clock.runImmediates();
    expect(turns.size).toBe(0);
    return count;
  }

  it("does one more step", () => {
    expect(steps(() => {})).toBe(4);
  });

  it("does no further step if it is deleted in the same one", () => {
    expect(steps((turns, owner, task) => turns.delete(owner, task))).toBe(1);
    expect(steps((turns) => turns.clear())).toBe(1);
  });

  it("does one more step if it is added again after that", () => {
    const count = steps((turns, owner, task) => {
      turns.delete(owner, task);
      turns.add(owner, task);
    });
    expect(count).toBe(4);
  });

  it("does one more step if the first throws, also where it has begun at once", () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const owner = {};
    let count = 0;
    const task: Task = {
      step: () => {
        count++;
        if (count > 1) return false;
        turns.add(owner, task);
        throw new Error("broken");
      },
    };
    expect(() => turns.start(owner, task)).toThrow("broken");
    clock.runImmediates();
    expect([count, turns.size]).toEqual([2, 0]);
  });
});

describe("Work that several tasks share", () => {
  it("is done once, by the task that has time", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const log: string[] = [];
    let isUnused = false;
    const shared = new SharedWork(work(clock, "shared", 20, log), () => {
      isUnused = true;
    });
    const greedy = {};
    for (let i = 0; i < 100; i++) void turns.run(greedy, work(clock, "other", 10, []));
    const first = turns.run(greedy, shared.join());
    const second = turns.run({}, shared.join());
    // Quanta alternate between the greedy owner and the other one.
    for (let turn = 0; turn < 10; turn++) clock.runTurn();
    expect(await second).toBe("shared");
    expect([log.length, isUnused]).toEqual([20, true]);
    clock.runImmediates();
    expect(await first).toBe("shared");
    expect(log).toHaveLength(20);
  });

  it("fails for all", async () => {
    const turns = new Turns(new WorkClock());
    const shared = new SharedWork(
      // biome-ignore lint/correctness/useYield: work that fails in its first step
      (function* (): TimeSlicedWork<void> {
        throw new Error("broken");
      })(),
      () => {},
    );
    await expect(turns.run({}, shared.join())).rejects.toThrow("broken");
    await expect(turns.run({}, shared.join())).rejects.toThrow("broken");
  });

  it("continues for the other tasks when one gives up", async () => {
    const clock = new WorkClock();
    const turns = new Turns(clock);
    const abort = new AbortController();
    const shared = new SharedWork(work(clock, "shared", 40, []), () => {});
    const first = turns.run({}, shared.join(), abort.signal);
    const second = turns.run({}, shared.join());
    abort.abort(new Error("gone"));
    clock.runImmediates();
    await expect(first).rejects.toThrow("gone");
    expect(await second).toBe("shared");
  });
});
