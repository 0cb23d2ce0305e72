import { describe, expect, it, test } from "vitest";
import {
  EventLoopTurns,
  quantumMs,
  runInTimeSlices,
  runPaced,
  turnMs,
} from "../../src/base/event-loop-turns.ts";
import { Turns } from "../../src/base/turns.ts";
import { WorkClock } from "../work-clock.ts";

/** Endless work in logged steps of half a quantum. */
function* endless(clock: WorkClock, name: string, log: string[]): Generator<void, void, void> {
  for (;;) {
    log.push(name);
    clock.spend(quantumMs / 2);
    yield;
  }
}

/** Every kind of time-sliced work, all at once and endless. */
function startAll(clock: WorkClock, log: string[]): readonly string[] {
  void new Turns(clock).run({}, endless(clock, "scan", log));
  void new Turns(clock).run({}, endless(clock, "opening", log));
  runInTimeSlices(clock, endless(clock, "maintenance", log));
  for (const name of ["other maintenance", "bookmarks"]) {
    runInTimeSlices(clock, endless(clock, name, log));
  }
  return ["scan", "opening", "maintenance", "other maintenance", "bookmarks"];
}

describe("The turns of an event loop", () => {
  it("are shared: all time-sliced work together gets one slice per turn", () => {
    const clock = new WorkClock();
    startAll(clock, []);
    expect(clock.now()).toBe(turnMs);
    for (let turn = 2; turn < 10; turn++) {
      clock.runTurn();
      expect(clock.now()).toBe(turn * turnMs);
    }
  });

  it("are shared fairly: each worker gets one quantum before any gets a second one", () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const names = startAll(clock, log);
    const counts: Record<string, number> = {};
    log.length = 0;
    // The number of quanta in five turns: four for each of the five.
    for (let turn = 0; turn < 5; turn++) clock.runTurn();
    for (const name of log) counts[name] = (counts[name] ?? 0) + 1;
    expect(counts).toEqual(Object.fromEntries(names.map((name) => [name, 8])));
  });

  it("continue with the other workers when one throws, and with the rest of its work", () => {
    const clock = new WorkClock();
    const log: string[] = [];
    const failing = function* (): Generator<void, void, void> {
      yield;
      throw new Error("A fault.");
    };
    void new Turns(clock).run({}, endless(clock, "scan", log));
    runInTimeSlices(clock, failing());
    runInTimeSlices(clock, endless(clock, "after", log));
    expect(() => {
      for (let turn = 0; turn < 10; turn++) clock.runTurn();
    }).toThrow("A fault.");
    log.length = 0;
    clock.runTurn();
    expect(new Set(log)).toEqual(new Set(["scan", "after"]));
  });

  it("begin at once, and continue in the next turn when the slice is over", () => {
    const clock = new WorkClock();
    const log: string[] = [];
    runInTimeSlices(clock, endless(clock, "a", log));
    const perTurn = (2 * turnMs) / quantumMs;
    expect(log).toHaveLength(perTurn);
    clock.runTurn();
    expect(log).toHaveLength(2 * perTurn);
  });

  it("set no immediate when nothing is left to do", () => {
    const clock = new WorkClock();
    runInTimeSlices(clock, [][Symbol.iterator]() as Generator<void, void, void>);
    clock.runTurn();
    clock.runTurn();
    expect(clock.pendingImmediates).toBe(0);
  });
});

/** A process with other time-sliced work, and with turns that take this long, in milliseconds. */
function busy(turnMs: number) {
  const clock = new WorkClock();
  for (let i = 0; i < 8; i++) {
    EventLoopTurns.of(clock).schedule({
      work: (until) => {
        while (clock.now() < until) clock.spend(0.1);
        return true;
      },
    });
  }
  const turn = (): void => {
    clock.spend(turnMs);
    clock.runTurn();
  };
  return { clock, turn };
}

/** Runs steps of 0.1 ms. Returns when all were done, and the longest time that time-sliced work has held a turn. */
function run(steps: number, turnMs: number) {
  const { clock, turn } = busy(turnMs);
  let left = steps;
  runPaced(clock, {
    ...{ steps, withinMs: 500 },
    step: () => {
      clock.spend(0.1);
      return --left > 0;
    },
  });
  let longestMs = 0;
  while (left > 0) {
    const before = clock.now();
    turn();
    longestMs = Math.max(longestMs, clock.now() - before - turnMs);
  }
  return { ms: clock.now(), longestMs };
}

describe("Paced work", () => {
  test.each([0, 5, 20, 50])(
    "is done in its time beside other work, in turns of %d ms",
    (turnMs) => {
      const { ms, longestMs } = run(1_000, turnMs);
      expect(ms).toBeLessThan(500 + 2 * (turnMs + 10));
      // What it needs per turn of its 500 ms, and the slice that all share.
      expect(longestMs).toBeLessThan(3 + Math.max(8, turnMs));
    },
  );

  test("that is too much takes longer, and holds the event loop no longer per turn", () => {
    const { ms, longestMs } = run(20_000, 10);
    expect(ms).toBeGreaterThan(2_000);
    expect(longestMs).toBeLessThan(3 + 20);
  });
});
