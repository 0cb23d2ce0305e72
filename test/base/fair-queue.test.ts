import { expect, test } from "vitest";
import { FairQueue } from "../../src/base/fair-queue.ts";
import { GroupedOwner } from "../../src/base/rotation.ts";

class Member extends GroupedOwner {}

test("Items are taken by owners in rotation, and in order of each", () => {
  const queue = new FairQueue<string>();
  const [greedy, modest] = [{}, {}];
  for (const item of ["a", "b", "c"]) queue.push(greedy, item);
  queue.push(modest, "x");
  expect([queue.size, queue.has(modest)]).toEqual([4, true]);
  expect([1, 2, 3, 4, 5].map(() => queue.shift())).toEqual(["a", "x", "b", "c", undefined]);
  expect([queue.size, queue.has(greedy)]).toEqual([0, false]);
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
  expect([queue.shift(), queue.shift(), queue.size]).toEqual(["b", undefined, 0]);
  queue.push(owner, "c");
  queue.clear();
  expect([queue.shift(), queue.size, queue.has(owner)]).toEqual([undefined, 0, false]);
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
  const first = queue.shiftOf(
    (group) => group === caller,
    (owner) => owner !== two,
  );
  expect(first).toEqual([one, "again"]);
  expect(queue.most()?.entry.size).toBe(1);
  expect(queue.size).toBe(2);
});
