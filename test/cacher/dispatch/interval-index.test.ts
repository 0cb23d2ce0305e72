import { describe, expect, test } from "vitest";
import { IntervalIndex } from "../../../src/cacher/dispatch/interval-index.ts";
import { isBetween, type KeyInterval } from "../../../src/storage/storage.ts";
import fc, { runs } from "../../property.ts";

/** An index whose values are the names of its intervals: `a-c`, or `a-` up to the last key. */
function indexOf(...names: readonly string[]): IntervalIndex<string> {
  const index = new IntervalIndex<string>();
  for (const name of names) index.add(intervalOf(name), name);
  return index;
}

function intervalOf(name: string): KeyInterval {
  const [from = "", to = ""] = name.split("-");
  return { from, to: to === "" ? undefined : to };
}

/** Numbers from 0 up to 1, the same on each run. */
function randomNumbers(): () => number {
  let state = 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function found<T>(index: IntervalIndex<T>, key: string): T[] {
  const names: T[] = [];
  index.find(key, names);
  return names.sort();
}

describe("An index of intervals", () => {
  test("finds those that begin at the key or before it, and end after it", () => {
    const index = indexOf("b-d", "c-", "a-b", "d-e");
    const keys = ["", "a", "az", "b", "c", "d", "e"];
    expect(keys.map((key) => found(index, key))).toEqual([
      [],
      ["a-b"],
      ["a-b"],
      ["b-d"],
      ["b-d", "c-"],
      ["c-", "d-e"],
      ["c-"],
    ]);
  });

  test("is empty at first, and counts its intervals", () => {
    const index = indexOf();
    expect([index.size, found(index, "a")]).toEqual([0, []]);
    index.add({ from: "a", to: undefined }, "a-");
    index.add({ from: "a", to: "b" }, "a-b");
    expect(index.size).toBe(2);
    index.delete({ from: "a", to: undefined }, "a-");
    expect([index.size, found(index, "a")]).toEqual([1, ["a-b"]]);
  });

  test("deletes one of several that begin at the same key, and only once", () => {
    const names = ["b-c", "b-d", "b-e"];
    for (const name of names) {
      const index = indexOf("a-b", ...names, "c-f");
      for (let i = 0; i < 2; i++) index.delete(intervalOf(name), name);
      expect(index.size).toBe(4);
      expect(found(index, "b")).toEqual(names.filter((other) => other !== name));
      expect([...found(index, "a"), ...found(index, "e")]).toEqual(["a-b", "c-f"]);
    }
  });

  test("ignores the deletion of what it does not hold", () => {
    const index = indexOf("b-c");
    index.delete({ from: "b", to: "c" }, "another");
    index.delete({ from: "a", to: "c" }, "b-c");
    index.delete({ from: "c", to: undefined }, "b-c");
    expect([index.size, found(index, "b")]).toEqual([1, ["b-c"]]);
  });

  test("finds one of many in logarithmic time, wherever it is, in whatever order they were added", () => {
    const digits = (i: number): string => String(i).padStart(4, "0");
    const count = 1_023;
    const index = new IntervalIndex<number>(randomNumbers());
    for (let i = 0; i < count; i++) index.add({ from: digits(i), to: digits(i + 1) }, i);
    const most = [digits(count), "", ...Array.from({ length: count }, (_, i) => digits(i))].map(
      (key) => index.find(key, []),
    );
    for (let i = 0; i < count; i++) expect(found(index, digits(i))).toEqual([i]);
    expect(Math.min(...most)).toBeGreaterThan(0);
    // Ten levels at least. The longest path of a tree that was built in random order has about two and a half times as many.
    expect(Math.max(...most)).toBeLessThanOrEqual(2 * 25);
  });

  test("compares as rarely for a change as for a search, among ten thousand", () => {
    const from = { compared: 0 };
    const index = new IntervalIndex<number>(randomNumbers());
    const interval = (i: number): KeyInterval => {
      const text = String(i).padStart(5, "0");
      return {
        get from() {
          from.compared++;
          return text;
        },
        to: `${text}a`,
      };
    };
    const intervals = Array.from({ length: 10_000 }, (_, i) => interval(i));
    for (const [i, each] of intervals.entries()) index.add(each, i);
    from.compared = 0;
    for (let i = 0; i < 100; i++) {
      index.delete(intervals[i] as KeyInterval, i);
      index.find("05000", []);
      index.add(intervals[i] as KeyInterval, i);
    }
    expect(from.compared / 100).toBeLessThan(400);
  });

  test("has intervals that many values share once", () => {
    const index = new IntervalIndex<number>();
    for (let i = 0; i < 100; i++) index.add({ from: "a", to: i % 2 === 0 ? "b" : undefined }, i);
    const values: number[] = [];
    expect([index.find("a", values), values.length, index.size]).toEqual([2, 100, 100]);
  });

  test("finds for any intervals exactly those that the key is in", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", "\u{1f600}"), maxLength: 3 });
    const interval = fc.record({ from: text, to: fc.option(text, { nil: undefined }) });
    const step = fc.record({ interval, isAdded: fc.boolean(), key: text });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: "max" }), (steps) => {
        const index = new IntervalIndex<KeyInterval>();
        const present = new Set<KeyInterval>();
        for (const { interval, isAdded, key } of steps) {
          const [oldest] = present;
          if (isAdded || oldest === undefined) {
            index.add(interval, interval);
            present.add(interval);
          } else {
            index.delete(oldest, oldest);
            present.delete(oldest);
          }
          const found: KeyInterval[] = [];
          index.find(key, found);
          expect(new Set(found)).toEqual(
            new Set([...present].filter((each) => isBetween(key, each))),
          );
          expect([found.length, index.size]).toEqual([new Set(found).size, present.size]);
        }
      }),
      { numRuns: runs(200) },
    );
  });
});
