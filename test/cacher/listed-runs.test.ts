import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { defaultHistoryBounds } from "../../src/cacher/history.ts";
import { KeptPieces } from "../../src/cacher/kept-pieces.ts";
import { ListedRuns } from "../../src/cacher/listed-runs.ts";
import type { OrderedState } from "../../src/cacher/ordered-state.ts";
import type { CacheListRequest } from "../../src/cacher/request.ts";
import type { Run } from "../../src/cacher/run.ts";
import { WatchCache } from "../../src/cacher/watch-cache.ts";
import { WatchBatch } from "../../src/storage/event.ts";
import { compareKeys } from "../../src/storage/key-order.ts";
import type { StoredObject } from "../../src/storage/object.ts";
import { FakeClock } from "../fake-clock.ts";
import { event, object } from "./objects.ts";

const all: CacheListRequest = { prefix: "", limit: 0, at: { match: "ANY" } };

/** A run holds three of these, or a few more. */
const value = "x".repeat(25_000);

function key(i: number): string {
  return `k${String(i).padStart(3, "0")}`;
}

class World {
  readonly cache = new WatchCache(defaultHistoryBounds, new FakeClock());
  readonly kept = new KeptPieces();
  readonly runs = new ListedRuns(this.cache, this.kept);

  constructor(count: number) {
    const objects = Array.from({ length: count }, (_, i) => object(key(i), i + 1, value));
    this.cache.replace(objects, count + 1);
  }

  write(name: string): void {
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event("MODIFIED", name, revision, value)]));
  }

  delete(name: string): void {
    if (this.cache.state.get(name) === undefined) return;
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event("DELETED", name, revision)]));
  }

  /** All runs of the state, which is that of `revision`. */
  list(
    request: CacheListRequest = all,
    state: OrderedState = this.cache.state,
    revision: number = this.cache.revision,
  ): Run[] {
    const runs: Run[] = [];
    let next: string | undefined;
    const runAfter = this.runs.read(request, state, revision);
    do {
      const run = runAfter(next);
      runs.push(run);
      next = run.last;
    } while (next !== undefined);
    return runs;
  }
}

function objectsOf(runs: readonly Run[]): StoredObject[] {
  return runs.flatMap(({ items }) => items);
}

/** Of the runs of `after`, those that are not the very ones of `before`. */
function anew(before: readonly Run[], after: readonly Run[]): Run[] {
  const known = new Set(before.map(({ items }) => items));
  return after.filter(({ items }) => !known.has(items));
}

describe("The runs that a listing is put together from", () => {
  it("hold all objects in order, and say how heavy they are and where the next begins", () => {
    const world = new World(10);
    const runs = world.list();
    expect(objectsOf(runs)).toEqual([...world.cache.state.range("")]);
    expect(runs.map(({ items, last }) => [items.length, last])).toEqual([
      [3, "k002"],
      [3, "k005"],
      [3, "k008"],
      [1, undefined],
    ]);
    expect(runs[3]?.weight).toBe(25_000 + 4 + 64);
  });

  it("are the same for everybody who lists the same", () => {
    const world = new World(10);
    expect(anew(world.list(), world.list())).toEqual([]);
    const narrow = { ...all, prefix: "k00" };
    expect(anew(world.list(), world.list(narrow)).length).toBeGreaterThan(0);
    expect(anew(world.list(narrow), world.list(narrow))).toEqual([]);
  });

  it("are not shared between those who pick with functions", () => {
    const world = new World(4);
    const odd = world.list({ ...all, predicate: ({ key }) => key === "k001" });
    expect(objectsOf(odd).map(({ key }) => key)).toEqual(["k001"]);
    expect(anew(odd, world.list()).length).toBe(2);
  });

  it.each([
    ["a write into it", (world: World) => world.write("k004"), 1],
    ["a new object in it", (world: World) => world.write("k004a"), 1],
    ["a deletion in it", (world: World) => world.delete("k005"), 1],
    ["a write into two", (world: World) => [world.write("k000"), world.write("k009")], 2],
    ["a write behind the last", (world: World) => world.write("z"), 1],
  ])("are made anew only where that changed something: %s", (_name, change, count) => {
    const world = new World(10);
    const before = world.list();
    change(world);
    const after = world.list();
    expect(objectsOf(after)).toEqual([...world.cache.state.range("")]);
    expect(anew(before, after).length).toBe(count);
  });

  it("are of the state that is asked for, also when that is a past one", () => {
    const world = new World(10);
    const before = world.list();
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    world.list();
    const then = world.list(all, past.state, past.revision);
    expect(objectsOf(then)).toEqual(objectsOf(before));
    expect(anew(before, then).length).toBe(1);
    // And the past one has not taken the place of the present one.
    expect(objectsOf(world.list())).toEqual([...world.cache.state.range("")]);
  });

  it("do not outlive the history that they are of", () => {
    const world = new World(10);
    world.list();
    const other = [object("k000", 1, "other")];
    world.cache.replace(other, 11);
    expect(objectsOf(world.list())).toEqual(other);
  });

  it("are found only while they are kept: a listing without any leaves nothing behind", () => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    for (let i = 0; i < 10; i++) {
      world.list({ ...all, prefix: `none-${i}` }, past.state, past.revision);
    }
    expect(world.runs.size).toBe(0);
    world.list();
    expect(world.runs.size).toBe(1);
    world.kept.expire();
    world.kept.expire();
    expect(world.runs.size).toBe(0);
  });

  it("of a history that was take nothing from those of the history that is", () => {
    const world = new World(10);
    world.list();
    world.cache.replace([object("k000", 1, "other")], 11);
    world.kept.expire();
    world.list();
    // The runs of before go now, under the same name.
    world.kept.expire();
    expect(world.runs.size).toBe(1);
  });

  it("are let go when nobody has listed for a while", () => {
    const world = new World(10);
    const before = world.list();
    world.kept.expire();
    world.kept.expire();
    expect(anew(before, world.list()).length).toBe(4);
  });

  it("stay in step behind one that has grown, until it is twice as heavy as it should be", () => {
    const world = new World(10);
    const before = world.list();
    for (const letter of "abc") world.write(`k001${letter}`);
    expect(anew(before, world.list()).length).toBe(1);
    for (const letter of "defgh") world.write(`k001${letter}`);
    const after = world.list();
    expect(Math.max(...after.map(({ weight }) => weight))).toBeLessThan(175_000);
    expect(objectsOf(after)).toEqual([...world.cache.state.range("")]);
  });

  it("leave what comes behind the last object to the one that begins there", () => {
    const world = new World(6);
    // Somebody asks for what follows the last, and that is kept as a run of its own.
    world.runs.read(all, world.cache.state, world.cache.revision)(key(5));
    world.list();
    world.write(key(6));
    expect(objectsOf(world.list()).at(-1)?.key).toBe(key(6));
  });

  it("never tell anything but the state, whatever is written between listings", () => {
    const names = fc.integer({ min: 0, max: 12 }).map(key);
    const steps = fc.oneof(
      fc.record({ do: fc.constant("write" as const), name: names }),
      fc.record({ do: fc.constant("delete" as const), name: names }),
      fc.record({ do: fc.constantFrom("list" as const, "keep" as const, "past" as const) }),
      fc.record({ do: fc.constant("from" as const), name: names, past: fc.boolean() }),
    );
    fc.assert(
      fc.property(fc.array(steps, { maxLength: 40 }), (taken) => {
        const world = new World(6);
        let past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
        for (const step of taken) {
          if (step.do === "write") world.write(step.name);
          else if (step.do === "delete") world.delete(step.name);
          else if (step.do === "keep") {
            past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
          } else if (step.do === "from") {
            const { state, revision } = step.past ? past : world.cache;
            const { items, last } = world.runs.read(all, state, revision)(step.name);
            const following = [...state.range("", step.name)];
            expect(items).toEqual(following.slice(0, items.length));
            const next = following[items.length];
            // What follows begins behind the run, and nothing follows that ends all.
            if (last === undefined) expect(next).toBeUndefined();
            else if (next !== undefined) expect(compareKeys(last, next.key)).toBeLessThan(0);
          } else {
            const { state, revision } = step.do === "past" ? past : world.cache;
            const told = objectsOf(world.list(undefined, state, revision));
            expect(told).toEqual([...state.range("")]);
          }
        }
      }),
      { numRuns: 300 },
    );
  });
});
