import { describe, expect, it } from "vitest";
import { quantumMs } from "../../src/base/event-loop-turns.ts";
import { runInTimeSlices, type Steps, TimeSliceQueue } from "../../src/base/time-slice-queue.ts";
import { WorkClock } from "../work-clock.ts";

/** This many steps of a quantum, each of which is logged under a name. */
function* steps(clock: WorkClock, name: string, count: number, log: string[]): Steps {
  for (let i = 1; i <= count; i++) {
    log.push(`${name}${i}`);
    clock.spend(quantumMs);
    yield;
  }
}

/** The log of each turn of the event loop, beginning with the current one. */
function turns(clock: WorkClock, log: string[]): string[] {
  const all: string[] = [];
  do {
    all.push(log.splice(0).join(" "));
    clock.runTurn();
  } while (log.length > 0);
  return all;
}

describe("runInTimeSlices", () => {
  it("begins at once, and continues in the next turn when the slice is over", () => {
    const clock = new WorkClock();
    const log: string[] = [];
    runInTimeSlices(clock, steps(clock, "a", 9, log));
    expect(turns(clock, log)).toEqual(["a1 a2 a3 a4", "a5 a6 a7 a8", "a9"]);
  });
});

describe("TimeSliceQueue", () => {
  it("begins at once if there is time, and runs work in order", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    for (const name of ["a", "b", "c"]) queue.add(steps(clock, name, 4, log));
    expect(turns(clock, log)).toEqual(["a1 a2 a3 a4", "b1 b2 b3 b4", "c1 c2 c3 c4"]);
  });

  it("uses one slice per turn for all work that arrives in it, also if none was waiting", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    for (const name of ["a", "b", "c"]) queue.add(steps(clock, name, 1, log));
    expect(turns(clock, log)).toEqual(["a1 b1 c1"]);
  });

  it("continues with other work when work throws, and throws to the caller that added it", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    const failing = function* (): Steps {
      yield* steps(clock, "a", 1, log);
      throw new Error("A fault.");
    };
    expect(() => queue.add(failing())).toThrow("A fault.");
    queue.add(steps(clock, "b", 1, log));
    expect(turns(clock, log)).toEqual(["a1 b1"]);
  });

  it("drops waiting work on clear", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    queue.add(steps(clock, "a", 9, log));
    queue.clear();
    expect(turns(clock, log)).toEqual(["a1 a2 a3 a4"]);
    queue.add(steps(clock, "b", 1, log));
    expect(turns(clock, log)).toEqual(["b1"]);
  });

  /** Readers that record their names if there is time for them, and otherwise wait for their turn. */
  function readersOf(
    clock: WorkClock,
    queue: TimeSliceQueue,
    names: readonly string[],
    log: string[],
  ) {
    return names.map((name) => ({
      notify(): void {
        if (!queue.mayBegin()) {
          queue.enqueue(this);
          return;
        }
        log.push(name);
        clock.spend(quantumMs);
      },
    }));
  }

  it("lets readers begin while there is time in a turn, and notifies the others in later turns", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    const readers = readersOf(clock, queue, ["a", "b", "c", "d", "e"], log);
    for (const reader of readers) reader.notify();
    expect(log).toEqual(["a", "b", "c", "d"]);
    // Enqueues itself again while others wait, so it is after them.
    readers[0]?.notify();
    expect(turns(clock, log).join(" ")).toBe("a b c d e a");
  });

  it("alternates between readers and work, so that neither starves the other", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    queue.add(steps(clock, "fold", 20, log));
    const readers = readersOf(clock, queue, ["a", "b", "c", "d", "e", "f", "g", "h"], log);
    for (const reader of readers) reader.notify();
    const [, ...rest] = turns(clock, log);
    expect(rest.slice(0, 2)).toEqual(["a fold5 b fold6", "c fold7 d fold8"]);
  });

  it("makes progress however slow the clock is", () => {
    /** Each reading takes longer than a slice. */
    class SlowClock extends WorkClock {
      override now(): number {
        this.spend(10 * quantumMs);
        return super.now();
      }
    }
    const clock = new SlowClock();
    const queue = new TimeSliceQueue(clock);
    const log: string[] = [];
    const reader = { notify: () => log.push(queue.mayBegin() ? "taken" : "refused") };
    queue.add(steps(clock, "a", 2, log));
    queue.enqueue(reader);
    clock.runImmediates();
    expect(log).toEqual(["taken", "a1", "a2"]);
  });
});
