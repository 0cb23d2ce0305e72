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

function found(index: IntervalIndex<string>, key: string): string[] {
  const names: string[] = [];
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

  test("finds one of many in logarithmic time, wherever it is", () => {
    const digits = (i: number): string => String(i).padStart(4, "0");
    const count = 1_023;
    const index = new IntervalIndex<number>();
    for (let i = 0; i < count; i++) index.add({ from: digits(i), to: digits(i + 1) }, i);
    for (let i = 0; i < count; i++) {
      const values: number[] = [];
      const comparisons = index.find(digits(i), values);
      expect(values).toEqual([i]);
      // Ten levels, and a comparison with the largest end of a part that is left out at each.
      expect(comparisons).toBeGreaterThan(0);
      expect(comparisons).toBeLessThanOrEqual(20);
    }
    expect([index.find(digits(count), []), index.find("", [])]).toEqual([1, 10]);
  });

  test("takes time for each that it finds", () => {
    const index = new IntervalIndex<number>();
    for (let i = 0; i < 100; i++) index.add({ from: "a", to: i % 2 === 0 ? "b" : undefined }, i);
    expect(index.find("a", [])).toBe(100);
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
