import { describe, expect, it } from "vitest";
import { quantumMs, turnMs } from "../../src/base/event-loop-turns.ts";
import { runInTimeSlices, TimeSliceQueue } from "../../src/base/time-slice-queue.ts";
import { TimeSliceScheduler } from "../../src/base/time-slices.ts";
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
  void new TimeSliceScheduler(clock).run({}, endless(clock, "scan", log));
  void new TimeSliceScheduler(clock).run({}, endless(clock, "opening", log));
  runInTimeSlices(clock, endless(clock, "maintenance", log));
  for (const name of ["queue", "other queue"]) {
    new TimeSliceQueue(clock).add(endless(clock, name, log));
  }
  return ["scan", "opening", "maintenance", "queue", "other queue"];
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
    void new TimeSliceScheduler(clock).run({}, endless(clock, "scan", log));
    const queue = new TimeSliceQueue(clock);
    queue.add(failing());
    queue.add(endless(clock, "after", log));
    expect(() => {
      for (let turn = 0; turn < 10; turn++) clock.runTurn();
    }).toThrow("A fault.");
    log.length = 0;
    clock.runTurn();
    expect(new Set(log)).toEqual(new Set(["scan", "after"]));
  });

  it("set no immediate when nothing is left to do", () => {
    const clock = new WorkClock();
    runInTimeSlices(clock, [][Symbol.iterator]() as Generator<void, void, void>);
    clock.runTurn();
    clock.runTurn();
    expect(clock.pendingImmediates).toBe(0);
  });
});
