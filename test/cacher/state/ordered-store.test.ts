import { describe, expect, it } from "vitest";
import type { TimeSlicedWork } from "../../../src/base/event-loop-turns.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { isRawKey, keyBytes, keyText } from "../../../src/model/key-bytes.ts";
import { includesKey } from "../../../src/storage/storage.ts";
import fc, { runs } from "../../property.ts";
import { finish } from "../finish.ts";
import { cornerText, object } from "../objects.ts";

/** The order of etcd: by the bytes of the keys. */
function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function stateOf(keys: readonly string[]): OrderedStore {
  const state = new OrderedStore();
  for (const [i, key] of keys.entries()) state.set(object(key, i + 1));
  return state;
}

function keysOf(state: OrderedStore, prefix = "", startAfter?: string): string[] {
  return Array.from(state.range(prefix, startAfter), ({ key }) => key);
}

/** The expected result of `range`, computed from an array. */
function expected(keys: readonly string[], prefix: string, startAfter?: string): string[] {
  return keys
    .filter((key) => Buffer.from(key).indexOf(Buffer.from(prefix)) === 0)
    .filter((key) => startAfter === undefined || byBytes(key, startAfter) > 0)
    .sort(byBytes);
}

const key = cornerText(1, 4);
/** From few keys up to enough of them that the tree has several levels. */
const keySets = fc.oneof(
  fc.uniqueArray(key, { maxLength: 12 }),
  fc.uniqueArray(key, { minLength: 100, maxLength: 300 }),
);

describe("The ordered store", () => {
  it("of objects in any order equals one built by setting them one by one, and changes like it", () => {
    const changes = fc.array(fc.record({ key, isDelete: fc.boolean() }), { maxLength: 50 });
    fc.assert(
      fc.property(keySets, fc.boolean(), changes, (keys, isSorted, changed) => {
        const listed = isSorted ? keys.toSorted(byBytes) : [...keys, ...keys.slice(0, 1)];
        const built = OrderedStore.of(listed.map((one, i) => object(one, i + 1)));
        const set = stateOf(listed);
        for (const { key: one, isDelete } of changed) {
          for (const state of [built, set]) {
            if (isDelete) state.delete(one);
            else state.set(object(one, 1000));
          }
        }
        const contents = (state: OrderedStore) =>
          Array.from(state.range(""), (one) => [one.key, one.modRevision]);
        expect(contents(built)).toEqual(contents(set));
        expect(built.size).toBe(set.size);
      }),
      { numRuns: runs(300) },
    );
  });

  it.each([4_095, 4_096, 4_097, 8_193, 30_000])("is built from parts of %i objects", (count) => {
    const keyAt = (i: number): string => String(i).padStart(6, "0");
    const keys = Array.from({ length: count }, (_, i) => keyAt(2 * i));
    const built = OrderedStore.of(keys.map((one) => object(one, 1)));
    expect(keysOf(built)).toEqual(keys);
    expect(built.size).toBe(count);
    expect(finish(built.count("", keyAt(8_000)))).toBe(Math.max(0, count - 4_001));
    const before = built.snapshot();
    // Each second key is deleted, and one is added behind each.
    for (let i = 0; i < count; i++) {
      if (i % 2 === 0) built.delete(keyAt(2 * i));
      built.set(object(keyAt(2 * i + 1), 2));
    }
    const changed = Array.from({ length: 2 * count }, (_, i) => keyAt(i));
    expect(keysOf(built)).toEqual(changed.filter((_, i) => i % 4 !== 0));
    expect(keysOf(before)).toEqual(keys);
    for (const one of changed) built.delete(one);
    expect(built.size).toBe(0);
  });

  it("ranges over, and counts, only the keys of a prefix that follow a key, in byte order", () => {
    const places = fc.array(
      fc.record({ prefix: cornerText(0, 3), startAfter: fc.option(cornerText(0, 4)) }),
      { minLength: 1, maxLength: 20 },
    );
    fc.assert(
      fc.property(keySets, places, (keys, asked) => {
        const state = stateOf(keys);
        for (const { prefix, startAfter } of asked) {
          const after = startAfter ?? undefined;
          const range = expected(keys, prefix, after);
          expect(keysOf(state, prefix, after)).toEqual(range);
          expect(finish(state.count(prefix, after))).toBe(range.length);
        }
      }),
      { numRuns: runs(300) },
    );
  });

  it("continues after any of its keys, so that pages of one object join", () => {
    fc.assert(
      fc.property(keySets, cornerText(0, 2), (keys, prefix) => {
        const state = stateOf(keys);
        const range = expected(keys, prefix);
        for (const [i, last] of range.entries()) {
          expect(state.range(prefix, last).next().value?.key).toBe(range[i + 1]);
          expect(finish(state.count(prefix, last))).toBe(range.length - i - 1);
        }
      }),
      { numRuns: runs(200) },
    );
  });

  it.each([
    ["the key that is the prefix itself", "a", "a", ["a/1", "ab"]],
    ["a key before the prefix", "a/", "Z", ["a/1"]],
    ["a key after all of the prefix", "a/", "b", []],
    ["a key that does not exist", "", "a0", ["ab", "b"]],
    ["the last key", "", "b", []],
    ["the empty key", "", "", ["a", "a/1", "ab", "b"]],
  ])("continues after %s", (_what, prefix, startAfter, rest) => {
    const state = stateOf(["b", "ab", "a/1", "a"]);
    expect(keysOf(state, prefix, startAfter)).toEqual(rest);
    expect(finish(state.count(prefix, startAfter))).toBe(rest.length);
  });

  it.each([
    ["ends below the surrogates", "\ud7ff", ["\ud7ffz"], ["\ue000", "\u{10000}"]],
    ["is the last before astral characters", "\uffff", ["\uffffz"], ["\ufffe", "\u{10000}"]],
    ["is astral", "\u{1f600}", ["\u{1f600}/1"], ["\u{1f601}", "\u{1f5ff}", "\uffff"]],
    ["ends with the last character", "a\u{10ffff}", ["a\u{10ffff}z"], ["a", "b", "a\u{10fffe}"]],
    ["is the last character", "\u{10ffff}", ["\u{10ffff}z"], ["\u{10fffe}", "z"]],
  ])("counts under a prefix that %s", (_what, prefix, below, beside) => {
    const state = stateOf([...below, prefix, ...beside]);
    expect(keysOf(state, prefix)).toEqual([prefix, ...below]);
    expect(finish(state.count(prefix))).toBe(1 + below.length);
  });

  it("has keys of any bytes in the order of their bytes, and counts them apart", () => {
    const part = fc.constantFrom("a", "b", "\xff", "\xc3", "\xa9", "\xe2\x98", "\x83");
    const anyBytes = fc
      .array(part, { maxLength: 4 })
      .map((parts) => keyText(Buffer.from(parts.join(""), "latin1")));
    const step = fc.record({ key: anyBytes, isDelete: fc.boolean() });
    const steps60 = fc.array(step, { maxLength: 60, size: "max" });
    const input = [steps60, anyBytes, anyBytes, anyBytes] as const;
    const prefixes = fc.constantFrom("", "a", "é", "a☃");
    fc.assert(
      fc.property(...input, prefixes, (steps, from, to, after, prefix) => {
        const state = new OrderedStore();
        const keys = new Set<string>();
        for (const { key: one, isDelete } of steps) {
          if (isDelete) state.delete(one);
          else state.set(object(one, 1));
          if (isDelete) keys.delete(one);
          else keys.add(one);
        }
        const sorted = [...keys].sort((a, b) => Buffer.compare(keyBytes(a), keyBytes(b)));
        for (const store of [state, state.snapshot(), OrderedStore.of([...state.range("")])]) {
          for (const scope of [{ key: from }, { prefix }, { from, to }, { from, to: undefined }]) {
            const inScope = sorted.filter((one) => includesKey(scope, one));
            const reversed = inScope.toReversed();
            const listed = (...[after, isDescending]: [string?, boolean?]) =>
              Array.from(store.objectsIn(scope, after, isDescending), (one) => one.key);
            expect(listed()).toEqual(inScope);
            expect(listed(undefined, true)).toEqual(reversed);
            const isAbove = (one: string) => Buffer.compare(keyBytes(one), keyBytes(after)) > 0;
            const above = inScope.filter(isAbove);
            expect(listed(after)).toEqual(above);
            expect(listed(after, true)).toEqual(
              reversed.filter((one) => one !== after && !isAbove(one)),
            );
            expect(finish(store.countIn(scope))).toBe(inScope.length);
            expect(finish(store.countIn(scope, after))).toBe(above.length);
          }
          const below = sorted.filter((one) => keyBytes(one).indexOf(prefix) === 0);
          expect(finish(store.count(prefix))).toBe(below.length);
          expect(finish(store.countNamed({ prefix }))).toBe(
            below.filter((one) => !isRawKey(one)).length,
          );
        }
      }),
      { numRuns: runs(400) },
    );
  });

  it("counts in steps, also up to a key in the middle of one", () => {
    const names = Array.from({ length: 10_000 }, (_, i) => `a${String(i).padStart(5, "0")}`);
    const state = OrderedStore.of(["A", ...names, "b"].map((key) => object(key, 1)));
    const stepsAndCount = (work: TimeSlicedWork<number>): [steps: number, count: number] => {
      for (let steps = 1; ; steps++) {
        const { done, value } = work.next();
        if (done === true) return [steps, value];
      }
    };
    expect(stepsAndCount(state.count("a"))).toEqual([3, 10_000]);
    expect(stepsAndCount(state.count("a", "a00003"))).toEqual([3, 9_996]);
    for (const length of [0, 1, 4_095, 4_096, 4_097, 8_192, 8_193]) {
      const scope = { from: "a", to: names[length] };
      expect(stepsAndCount(state.countIn(scope))).toEqual([Math.ceil(length / 4_096) || 1, length]);
    }
    expect(stepsAndCount(state.countIn({ from: "a", to: undefined }))).toEqual([3, 10_001]);
  });

  it("counts 0 in an empty store", () => {
    const state = new OrderedStore();
    expect(["", "a"].map((prefix) => finish(state.count(prefix)))).toEqual([0, 0]);
    expect(finish(state.count("", "a"))).toBe(0);
    expect(keysOf(state)).toEqual([]);
  });

  it("keeps every snapshot unchanged while it and its other snapshots change", () => {
    const operations = fc.array(
      fc.oneof(
        fc.record({ do: fc.constant("set" as const), key }),
        fc.record({ do: fc.constant("delete" as const), key }),
        fc.record({ do: fc.constant("snapshot" as const) }),
      ),
      { minLength: 1, maxLength: 300 },
    );
    fc.assert(
      fc.property(operations, (steps) => {
        const state = new OrderedStore();
        const model = new Map<string, number>();
        const snapshots: { taken: OrderedStore; holds: Map<string, number> }[] = [];
        for (const [i, step] of steps.entries()) {
          if (step.do === "snapshot") {
            snapshots.push({ taken: state.snapshot(), holds: new Map(model) });
          } else if (step.do === "set") {
            state.set(object(step.key, i + 1));
            model.set(step.key, i + 1);
          } else {
            state.delete(step.key);
            model.delete(step.key);
          }
        }
        for (const { taken, holds } of [...snapshots, { taken: state, holds: model }]) {
          expect(taken.size).toBe(holds.size);
          expect(keysOf(taken)).toEqual([...holds.keys()].sort(byBytes));
          for (const [held, revision] of holds) {
            expect(taken.get(held)?.modRevision).toBe(revision);
          }
        }
      }),
      { numRuns: runs(200) },
    );
  });

  it("ranges over a snapshot page by page while the state is replaced key by key", () => {
    const keys = Array.from({ length: 500 }, (_, i) => `k${String(i).padStart(3, "0")}`);
    const state = stateOf(keys);
    const range = state.snapshot().range("");
    const seen: string[] = [];
    for (const { key: found } of range) {
      seen.push(found);
      for (const other of keys) if (other.endsWith(found.at(-1) ?? "")) state.delete(other);
      state.set(object(`x${found}`, 1_000));
    }
    expect(seen).toEqual(keys);
  });
});
