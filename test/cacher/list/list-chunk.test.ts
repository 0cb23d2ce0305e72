import { describe, expect, it, test } from "vitest";
import type { TimeSlicedWork } from "../../../src/base/event-loop-turns.ts";
import {
  type ChunkBounds,
  countMatching,
  type ListChunk,
  restOf,
  takeChunk,
} from "../../../src/cacher/list/list-chunk.ts";
import { Projection } from "../../../src/cacher/request/projection.ts";
import { RecentlyShown } from "../../../src/cacher/request/recently-shown.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { Shard } from "../../../src/cacher/request/shard.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import { finish } from "../finish.ts";
import { object } from "../objects.ts";

const keys = Array.from({ length: 8 }, (_, i) => `k${i}`);
const objects = keys.map((key) => object(key, 1));
const size = estimatedBytes(object("k0", 1));

function chunkOf(bounds: Partial<ChunkBounds>, predicate?: Predicate, end?: string) {
  const filter = new Filter({ scope: { prefix: "" }, predicate, withPrevious: false });
  const whole = { bytes: Infinity, scanned: Infinity, ...bounds };
  const chunk = finish(takeChunk(objects, filter, whole, end));
  return { keys: chunk.items.map(({ key }) => key).join(" "), ...chunk };
}

/** The number of steps of the work: one more than its pauses. */
function steps(work: TimeSlicedWork<unknown>): number {
  let count = 1;
  while (work.next().done !== true) count++;
  return count;
}

const isOdd: Predicate = ({ key }) => Number(key.slice(1)) % 2 === 1;

describe("A chunk", () => {
  it("ends at the bound of what it examines also where the shard has no key", () => {
    const shard = new Shard([{ first: 0n, last: 0n }]);
    const filter = new Filter({ scope: { prefix: "" }, shard, withPrevious: false });
    const bounds = { bytes: Infinity, scanned: 5 };
    const { items, last, scanned } = finish(takeChunk(objects, filter, bounds, undefined));
    expect([items, last, scanned]).toEqual([[], "k4", 5]);
  });

  it("of a shard yields as often as one that evaluates a few requirements", () => {
    const ranges = Array.from({ length: 1_024 }, (_, i) => 2n ** 54n * BigInt(i));
    const shard = new Shard(ranges.map((first) => ({ first, last: first })));
    const filter = new Filter({ scope: { prefix: "" }, shard, withPrevious: false });
    const many = Array.from({ length: 10_000 }, (_, i) => object(`k${i}`, 1));
    const bounds = { bytes: Infinity, scanned: Infinity };
    expect(steps(takeChunk(many, filter, bounds, undefined))).toBeGreaterThan(10);
  });

  it.each([
    ["no bound", {}, undefined, undefined, keys.join(" "), undefined, 8],
    ["the bytes of 3 objects", { bytes: 3 * size }, undefined, undefined, "k0 k1 k2", "k2", 3],
    ["some bytes more", { bytes: 3 * size + 1 }, undefined, undefined, "k0 k1 k2 k3", "k3", 4],
    ["any bytes", { bytes: 0 }, undefined, undefined, "k0", "k0", 1],
    ["2 objects", { items: 2 }, undefined, undefined, "k0 k1", "k1", 2],
    ["all objects", { items: 8 }, undefined, undefined, keys.join(" "), undefined, 8],
    ["5 examined ones", { scanned: 5 }, undefined, undefined, "k0 k1 k2 k3 k4", "k4", 5],
    ["5 examined ones, of which 2 match", { scanned: 5 }, isOdd, undefined, "k1 k3", "k4", 5],
    // Those that do not match are before the border, so that an index does not move it.
    ["2 matching ones", { items: 2 }, isOdd, undefined, "k1 k3", "k4", 5],
    ["4 matching ones, which are all", { items: 4 }, isOdd, undefined, "k1 k3 k5 k7", undefined, 8],
    ["the begin of the next chunk", {}, undefined, "k3", "k0 k1 k2 k3", "k3", 4],
    ["a key that is gone", {}, undefined, "k3a", "k0 k1 k2 k3", "k3a", 4],
    ["a key behind all", {}, undefined, "z", keys.join(" "), "z", 8],
    [
      "twice its bytes, before that key",
      { bytes: 2 * size },
      undefined,
      "k6",
      "k0 k1 k2 k3",
      "k3",
      4,
    ],
    ["twice what it examines", { scanned: 2 }, undefined, "k6", "k0 k1 k2 k3", "k3", 4],
  ])("ends at %s", (_, bounds, predicate, end, expected, last, scanned) => {
    const chunk = chunkOf(bounds, predicate, end);
    expect([chunk.keys, chunk.last, chunk.scanned]).toEqual([expected, last, scanned]);
    expect(chunk.estimatedBytes).toBe(chunk.items.length * size);
    expect(chunk.batch).toBeUndefined();
  });

  it("has no raw keys, which count as examined", () => {
    const raw = [object("", 1), object("a", 1), object("b\ud800", 1), object("c", 1)];
    const filter = new Filter({ scope: { prefix: "" }, withPrevious: false });
    const chunk = finish(takeChunk(raw, filter, { bytes: Infinity, scanned: Infinity }, undefined));
    expect([chunk.items.map(({ key }) => key), chunk.scanned]).toEqual([["a", "c"], 4]);
    // It does not end before its first key, which the next one would begin after.
    const short = finish(takeChunk(raw, filter, { bytes: Infinity, scanned: 1 }, undefined));
    expect([short.items.map(({ key }) => key), short.last]).toEqual([["a"], "a"]);
  });

  it("is made in steps of 4,096 objects, or fewer with a predicate or a view of their values", () => {
    const many = Array.from({ length: 3 * 4_096 }, () => object("k", 1));
    const view = new Projection("slow", 1, (shown) => shown, new RecentlyShown());
    view.costOf = () => 63;
    const stepsOf = (request: Partial<ConstructorParameters<typeof Filter>[0]>): number => {
      const filter = new Filter({ scope: { prefix: "" }, withPrevious: false, ...request });
      return steps(takeChunk(many, filter, { bytes: Infinity, scanned: Infinity }, undefined));
    };
    const perStep = Math.floor(4_096 / 17);
    expect([stepsOf({}), stepsOf({ predicate: () => true }), stepsOf({ view })]).toEqual([
      ...[3, Math.ceil(many.length / perStep), (64 * many.length) / 4_096],
    ]);
  });
});

test("Objects are counted in steps of 4,096, or fewer with a predicate", () => {
  const many = Array.from({ length: 3 * 4_096 }, () => object("k", 1));
  const stepsOf = (predicate?: Predicate): number =>
    steps(
      countMatching(many, new Filter({ scope: { prefix: "" }, predicate, withPrevious: false })),
    );
  const perStep = Math.floor(4_096 / 17);
  expect([stepsOf(), stepsOf(() => true)]).toEqual([3, Math.ceil(many.length / perStep)]);
});

describe("The rest of a chunk", () => {
  const chunk: ListChunk = chunkOf({ items: 4 });

  it.each([
    ["its first object", "k0", "k1 k2 k3", 3],
    ["a key between two", "k1a", "k2 k3", 2],
    ["a key before it", "a", "k0 k1 k2 k3", 4],
    ["its last object", "k3", "", 0],
  ])("begins behind %s", (_, key, expected, count) => {
    const rest = restOf(chunk, key);
    expect(rest.items.map((item) => item.key).join(" ")).toBe(expected);
    expect(rest).toMatchObject({ estimatedBytes: count * size, scanned: count, last: "k3" });
  });
});

describe("The objects of a filter", () => {
  const state = OrderedStore.of(objects);
  const keysOf = (scope: { key: string } | { prefix: string }, startAfter?: string): string[] => {
    const filter = new Filter({ scope, withPrevious: false });
    return [...state.objectsIn(filter.scope, startAfter)].map(({ key }) => key);
  };

  it.each([
    ["its key", { key: "k3" }, undefined, ["k3"]],
    ["its key, behind another", { key: "k3" }, "k2", ["k3"]],
    ["none behind its key", { key: "k3" }, "k3", []],
    ["none if its key is absent", { key: "x" }, undefined, []],
    ["those with its prefix", { prefix: "k7" }, undefined, ["k7"]],
    ["those with its prefix, behind another", { prefix: "k" }, "k5", ["k6", "k7"]],
  ])("are %s", (_, scope, startAfter, expected) => {
    expect(keysOf(scope, startAfter)).toEqual(expected);
  });
});
