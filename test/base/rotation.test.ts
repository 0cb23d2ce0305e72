import { describe, expect, test } from "vitest";
import { quantumMs } from "../../src/base/event-loop-turns.ts";
import { Counts, GroupedOwner, Rotation } from "../../src/base/rotation.ts";
import { TimeSliceQueue } from "../../src/base/time-slice-queue.ts";
import { type TimeSlicedWork, TimeSliceScheduler } from "../../src/base/time-slices.ts";
import { WorkClock } from "../work-clock.ts";

class Member extends GroupedOwner {}

/** The owners of two groups: twenty, and one. */
function twoGroups() {
  const [many, one] = [{}, {}];
  const greedy = Array.from({ length: 20 }, () => new Member(many));
  return { many, greedy, modest: new Member(one) };
}

/** The owners of the next turns. */
function turns(rotation: Rotation<string>, count: number): (string | undefined)[] {
  return Array.from({ length: count }, () => {
    const next = rotation.next();
    if (next !== undefined) rotation.served(next[0]);
    return next?.[1];
  });
}

describe("Owners take turns", () => {
  test("by group: twenty of one have as many as a single one of another", () => {
    const rotation = new Rotation<string>();
    const { greedy, modest } = twoGroups();
    for (const [i, owner] of greedy.entries()) rotation.add(owner, `greedy ${i}`);
    rotation.add(modest, "modest");
    expect(turns(rotation, 6)).toEqual([
      ...["greedy 0", "modest", "greedy 1", "modest", "greedy 2", "modest"],
    ]);
  });

  test("one after the other, those without a group on their own", () => {
    const rotation = new Rotation<string>();
    for (const name of ["a", "b", "c"]) rotation.add({ name }, name);
    expect(turns(rotation, 4)).toEqual(["a", "b", "c", "a"]);
  });

  test("until they are deleted", () => {
    const rotation = new Rotation<string>();
    const { greedy, modest, many } = twoGroups();
    for (const owner of [...greedy, modest]) rotation.add(owner, "x");
    for (const owner of greedy) expect(rotation.delete(owner)).toBe(true);
    expect(rotation.delete(modest)).toBe(true);
    expect(rotation.delete(modest)).toBe(false);
    expect([rotation.size, rotation.next(), rotation.nextIn(many)]).toEqual([
      0,
      undefined,
      undefined,
    ]);
  });

  test("passing over groups and owners that must wait", () => {
    const rotation = new Rotation<string>();
    const { greedy, modest, many } = twoGroups();
    for (const [i, owner] of greedy.entries()) rotation.add(owner, `greedy ${i}`);
    rotation.add(modest, "modest");
    const others = rotation.nextOf(
      (group) => group !== many,
      () => true,
    );
    expect(others?.[1]).toBe("modest");
    const later = rotation.nextOf(
      () => true,
      (_owner, name) => name === "greedy 7",
    );
    expect(later?.[0]).toBe(greedy[7]);
  });
});

test("The group that has most is found, and in it the owner that has most", () => {
  const rotation = new Rotation<number>();
  const { many, greedy, modest } = twoGroups();
  for (const [i, owner] of greedy.entries()) rotation.add(owner, i);
  rotation.add(modest, 100);
  const size = (entry: number): number => entry;
  expect(rotation.most(size)).toEqual({ owner: greedy[19], entry: 19, total: 190 });
  expect(many).toBe(greedy[0]?.group);
});

test("Counts of 0 take no memory", () => {
  const counts = new Counts();
  const key = {};
  counts.add(key, 2);
  counts.add(key, -1);
  expect(counts.of(key)).toBe(1);
  counts.add(key, -1);
  expect(counts.of(key)).toBe(0);
  expect(Reflect.ownKeys(counts)).toEqual([]);
});

describe("Time slices", () => {
  function* work(clock: WorkClock, name: string, log: string[]): TimeSlicedWork<void> {
    log.push(name);
    clock.spend(quantumMs);
    yield;
  }

  test("are shared by caller: one with twenty connections delays another by one quantum", () => {
    const clock = new WorkClock();
    const scheduler = new TimeSliceScheduler(clock);
    const { greedy, modest } = twoGroups();
    const log: string[] = [];
    for (let i = 0; i < 10; i++) {
      for (const owner of greedy) void scheduler.run(owner, work(clock, "greedy", log));
    }
    log.length = 0;
    for (let i = 0; i < 5; i++) void scheduler.run(modest, work(clock, "modest", log));
    for (let turn = 0; turn < 4; turn++) clock.runTurn();
    expect(log.slice(0, 10).filter((name) => name === "modest")).toHaveLength(5);
  });

  test("of watches that catch up are shared by caller as well", () => {
    const clock = new WorkClock();
    const queue = new TimeSliceQueue(clock);
    const { greedy, modest } = twoGroups();
    const log: string[] = [];
    const reader = (name: string) => ({
      notify: () => {
        log.push(name);
        clock.spend(quantumMs);
      },
    });
    for (let i = 0; i < 100; i++) queue.enqueue(reader("greedy"), greedy[i % 20]);
    for (let i = 0; i < 5; i++) queue.enqueue(reader("modest"), modest);
    for (let turn = 0; turn < 4; turn++) clock.runTurn();
    expect(log.slice(0, 10).filter((name) => name === "modest")).toHaveLength(5);
  });
});
