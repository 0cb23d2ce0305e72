import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { Counts, FairQueue, GroupedOwner } from "../../src/base/fair-queue.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

class Member extends GroupedOwner {}

/** The owners of two groups: twenty, and one. */
function twoGroups() {
  const [many, one] = [{}, {}];
  const greedy = Array.from({ length: 20 }, () => new Member(many));
  return { many, greedy, modest: new Member(one) };
}

/** A queue in which each owner of two groups has an item with its name. */
function queueOfTwo() {
  const queue = new FairQueue<string>();
  const groups = twoGroups();
  for (const [i, owner] of groups.greedy.entries()) queue.push(owner, `greedy ${i}`);
  queue.push(groups.modest, "modest");
  return { queue, ...groups };
}

/** The next items, each of which goes behind the others of its owner. */
function turns(queue: FairQueue<string>, count: number): (string | undefined)[] {
  return Array.from({ length: count }, () => {
    const next = queue.next();
    if (next !== undefined) queue.served(next[0]);
    return next?.[1];
  });
}

describe("Owners take turns", () => {
  test("by group: twenty of one have as many as a single one of another", () => {
    expect(turns(queueOfTwo().queue, 6)).toEqual([
      ...["greedy 0", "modest", "greedy 1", "modest", "greedy 2", "modest"],
    ]);
  });

  test("one after the other, those without a group on their own", () => {
    const queue = new FairQueue<string>();
    for (const name of ["a", "b", "c"]) queue.push({ name }, name);
    expect(turns(queue, 4)).toEqual(["a", "b", "c", "a"]);
  });

  test("until they have nothing", () => {
    const { queue, greedy, modest, many } = queueOfTwo();
    for (const [i, owner] of greedy.entries()) {
      expect(queue.delete(owner, `greedy ${i}`)).toBe(true);
    }
    expect([queue.hasGroup(many), queue.hasGroup(modest.group)]).toEqual([false, true]);
    expect(queue.delete(modest, "modest")).toBe(true);
    expect(queue.delete(modest, "modest")).toBe(false);
    expect([queue.size, queue.next(), queue.shiftIn(many)]).toEqual([0, undefined, undefined]);
  });

  test("also where one has nothing more: its group has had its turn", () => {
    const { queue, greedy } = queueOfTwo();
    const [first] = greedy;
    if (first === undefined) return;
    queue.delete(first, "greedy 0");
    queue.served(first);
    expect(turns(queue, 3)).toEqual(["modest", "greedy 1", "modest"]);
  });

  test("passing over groups and owners that must wait", () => {
    const { queue, greedy, many } = queueOfTwo();
    expect(queue.next((group) => group !== many)?.[1]).toBe("modest");
    const later = queue.next(undefined, (_owner, name) => name === "greedy 7");
    expect(later?.[0]).toBe(greedy[7]);
    expect(queue.size).toBe(21);
  });
});

test("Items are taken by owners in rotation, and in order of each", () => {
  const queue = new FairQueue<string>();
  const [greedy, modest] = [{}, {}];
  for (const item of ["a", "b", "c"]) queue.push(greedy, item);
  queue.push(modest, "x");
  expect([queue.size, queue.has(modest), queue.first(greedy)]).toEqual([4, true, "a"]);
  const taken = [1, 2, 3, 4, 5].map(() => queue.shift()?.[1]);
  expect(taken).toEqual(["a", "x", "b", "c", undefined]);
  expect([queue.size, queue.has(greedy), queue.first(greedy)]).toEqual([0, false, undefined]);
});

test("An item waits once, and not after it is removed", () => {
  const queue = new FairQueue<string>();
  const owner = {};
  queue.push(owner, "a");
  queue.push(owner, "a");
  queue.push(owner, "b");
  expect([queue.size, queue.delete(owner, "a"), queue.delete(owner, "a")]).toEqual([
    2,
    true,
    false,
  ]);
  expect([queue.shift()?.[1], queue.shift(), queue.size]).toEqual(["b", undefined, 0]);
  queue.push(owner, "c");
  queue.clear();
  expect([queue.shift(), queue.size, queue.has(owner)]).toEqual([undefined, 0, false]);
});

test("An item that is added again goes behind the others of its owner", () => {
  const queue = new FairQueue<string>();
  const owner = {};
  for (const item of ["a", "b"]) queue.push(owner, item);
  expect(queue.first(owner)).toBe("a");
  queue.delete(owner, "a");
  queue.push(owner, "a");
  queue.push(owner, "c");
  queue.delete(owner, "b");
  expect([1, 2, 3].map(() => queue.shift()?.[1])).toEqual(["a", "c", undefined]);
});

test("Items of one group can be taken, and those passed over that may not have a turn", () => {
  const queue = new FairQueue<string>();
  const [caller, other] = [{}, {}];
  const [one, two] = [new Member(caller), new Member(caller)];
  queue.push(one, "one");
  queue.push(two, "two");
  queue.push(other, "other");
  expect(queue.shiftIn({})).toBeUndefined();
  expect(queue.shiftIn(caller)).toEqual([one, "one"]);
  queue.push(one, "again");
  const first = queue.shift(
    (group) => group === caller,
    (owner) => owner !== two,
  );
  expect(first).toEqual([one, "again"]);
  expect(queue.size).toBe(2);
});

test("The newest item is found of the owner that has most, of the group that has most", () => {
  const { queue, greedy, modest } = queueOfTwo();
  const [owner] = greedy.slice(7);
  for (let i = 0; i < 15; i++) queue.push(modest, `modest ${i}`);
  if (owner !== undefined) queue.push(owner, "newest");
  queue.push(modest, "last");
  expect(queue.newestOfMost([modest, "last"])).toEqual([owner, "newest"]);
  for (let i = 0; i < 15; i++) queue.push(modest, `more ${i}`);
  queue.push(modest, "added");
  expect(queue.newestOfMost([modest, "added"])).toEqual([modest, "added"]);
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

describe("Items that are deleted behind one that stays", () => {
  test.each([1, 10, 100])("are garbage, while %i of them wait at a time", async (atOnce) => {
    const queue = new FairQueue<object>();
    const owner = {};
    const first = {};
    queue.push(owner, first);
    expect(queue.first(owner)).toBe(first);
    const waiting: object[] = [];
    const deleted: WeakRef<object>[] = [];
    for (let i = 0; i < 5_000; i++) {
      const item = {};
      queue.push(owner, item);
      waiting.push(item);
      const oldest = waiting.length > atOnce ? waiting.shift() : undefined;
      if (oldest === undefined) continue;
      queue.delete(owner, oldest);
      deleted.push(new WeakRef(oldest));
    }
    // A weak reference that was made in this turn keeps its target alive until the next turn.
    await nextTurn();
    collectGarbage();
    const kept = deleted.filter((item) => item.deref() !== undefined);
    // The engine's tables have room for some that were deleted.
    expect(kept.length).toBeLessThanOrEqual(2 * atOnce + 16);
    expect([queue.size, queue.shift()?.[1]]).toEqual([1 + atOnce, first]);
    expect(queue.shift()?.[1]).toBe(waiting[0]);
  });

  test("leave the others in order, whichever go", () => {
    const queue = new FairQueue<number>();
    const owner = {};
    const expected = new Set<number>();
    let last = 0;
    // Deletes the first, another, or adds one: in an order that does not repeat soon.
    for (let i = 0; i < 5_000; i++) {
      const all = [...expected];
      const which = (i * i + (i >> 3)) % 5;
      if (which < 2 || all.length === 0) {
        queue.push(owner, ++last);
        expected.add(last);
      } else {
        const item = which === 2 ? all[0] : all[(i * 7) % all.length];
        if (item === undefined) continue;
        expect(queue.delete(owner, item)).toBe(true);
        expected.delete(item);
      }
      if (i % 3 > 0) expect(queue.first(owner)).toBe([...expected][0]);
      const newest = queue.newestOfMost([{}, 0]);
      expect(newest).toEqual(expected.size > 0 ? [owner, [...expected].at(-1)] : [{}, 0]);
    }
    expect(queue.size).toBe(expected.size);
  });
});
