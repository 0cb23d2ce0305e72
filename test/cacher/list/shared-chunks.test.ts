import { describe, expect, it } from "vitest";
import type { TimeSlicedWork } from "../../../src/base/event-loop-turns.ts";
import type { ListChunk } from "../../../src/cacher/list/list-chunk.ts";
import { Selection } from "../../../src/cacher/request/selection.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import type { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { compareKeys } from "../../../src/model/key-order.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { parseFieldSelector } from "../../../src/selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../../src/selector/parse-label-selector.ts";
import fc, { runs } from "../../property.ts";
import { finish } from "../finish.ts";
import { all, key, objectsOf, rebuilt, World } from "./list-world.ts";

/** A state that readers list, now or later. */
interface Past {
  readonly state: OrderedStore;
  readonly revision: number;
}

function now({ cache }: World): Past {
  return { state: cache.state.snapshot(), revision: cache.revision };
}

/** Matches everything, and takes a whole step for each object: so a chunk can be interrupted after each. */
class SlowSelection extends Selection {
  override readonly cost = 4_095;
}

function slowFilter(): Filter {
  const parsed = [parseLabelSelector(""), parseFieldSelector("")] as const;
  const selection = new SlowSelection(...parsed, () => noAttributes);
  return new Filter({ scope: { prefix: "" }, selection, withPrevious: false });
}

/** Expects what follows the key in the state to begin with the chunk, and to continue behind it. */
function expectPart({ items, last }: ListChunk, state: OrderedStore, after?: string): void {
  const following = [...state.range("", after)];
  expect(items.map(nameOf)).toEqual(following.slice(0, items.length).map(nameOf));
  if (last !== undefined && after !== undefined)
    expect(compareKeys(last, after)).toBeGreaterThan(0);
  const next = following[items.length];
  if (last === undefined) expect(next).toBeUndefined();
  else if (next !== undefined) expect(compareKeys(last, next.key)).toBeLessThan(0);
}

/** Expects the list to be the state. */
function expectWhole(
  world: World,
  filter: Filter,
  state: OrderedStore = world.cache.state.snapshot(),
  revision: number = world.cache.revision,
): void {
  const chunks = world.list(filter, state, revision);
  expect(objectsOf(chunks).map(nameOf)).toEqual([...state.range("")].map(nameOf));
}

function nameOf({ key, modRevision }: StoredObject): string {
  return `${key}@${modRevision}`;
}

const sizes = { minLength: 20, maxLength: 60, size: "max" } as const;
const names = fc.integer({ min: 0, max: 9 }).map(key);
const after = fc.option(names, { nil: undefined });
/** An older state, by its place among the kept ones, or the newest. */
const which = fc.option(fc.nat(5), { nil: undefined, freq: 2 });

describe("The chunks of one list, read at several revisions", () => {
  it("are correct however readers that make them at the same time, writes and evictions alternate", () => {
    const steps = fc.oneof(
      fc.record({ do: fc.constantFrom("write" as const, "delete" as const), name: names }),
      fc.record({
        do: fc.constant("begin" as const),
        which,
        after,
      }),
      fc.record({ do: fc.constant("step" as const), reader: fc.nat(5), steps: fc.nat(6) }),
      fc.record({ do: fc.constant("step" as const), reader: fc.nat(1), steps: fc.nat(9) }),
      fc.record({ do: fc.constant("keep" as const) }),
      // A reader that has begun before it continues with the state that it has.
      fc.record({ do: fc.constant("relist" as const), back: fc.nat(2) }),
      // Once evicts only what was not read since the last time.
      fc.record({ do: fc.constant("evict" as const), times: fc.integer({ min: 1, max: 2 }) }),
      fc.record({ do: fc.constant("list" as const), which }),
      fc.record({
        do: fc.constant("race" as const),
        afters: fc.tuple(after, after),
        turns: fc.array(fc.nat(1), { maxLength: 8 }),
      }),
    );
    fc.assert(
      fc.property(fc.array(steps, sizes), (taken) => {
        const world = new World(8);
        const filter = slowFilter();
        const kept: Past[] = [now(world)];
        const readers: { work: TimeSlicedWork<ListChunk>; state: OrderedStore; after?: string }[] =
          [];
        const at = (place: number | undefined): Past =>
          (place === undefined ? undefined : kept[place % kept.length]) ?? now(world);
        for (const step of taken) {
          if (step.do === "write") world.write(step.name);
          else if (step.do === "delete") world.delete(step.name);
          else if (step.do === "keep") kept.push(now(world));
          else if (step.do === "relist") {
            const { cache } = world;
            const objects = [...cache.state.range("")].slice(step.back);
            cache.replace(objects, cache.revision - step.back);
            kept.splice(0, Infinity, now(world));
          } else if (step.do === "evict") for (let i = 0; i < step.times; i++) world.kept.expire();
          else if (step.do === "begin") {
            const { state, revision } = at(step.which);
            const { after } = step;
            const work = world.lists.open(filter).chunk(after, revision, state);
            readers.push({ work, state, ...(after === undefined ? {} : { after }) });
          } else if (step.do === "step") {
            const index = step.reader % Math.max(1, readers.length);
            const reader = readers[index];
            for (let i = 0; reader !== undefined && i <= step.steps; i++) {
              const result = reader.work.next();
              if (result.done !== true) continue;
              expectPart(result.value, reader.state, reader.after);
              readers.splice(index, 1);
              break;
            }
          } else if (step.do === "list") {
            const { state, revision } = at(step.which);
            expectWhole(world, filter, state, revision);
          } else if (step.do === "race") {
            const { state, revision } = now(world);
            const racing = step.afters.map((after) =>
              world.lists.open(filter).chunk(after, revision, state),
            );
            for (const turn of step.turns) racing[turn]?.next();
            for (const work of racing) finish(work);
          }
        }
        // Readers that give up leave nothing behind.
        for (const { work } of readers) work.return(undefined as never);
        for (const { state, revision } of kept) expectWhole(world, filter, state, revision);
        // A chunk that does not learn of a write, since another covers the same keys, is stale.
        for (let i = 9; i >= 0; i--) {
          expectWhole(world, filter);
          world.write(key(i));
          expectWhole(world, filter);
        }
        world.kept.expire();
        world.kept.expire();
        expect([world.lists.size, world.kept.bytes]).toEqual([0, 0]);
      }),
      { numRuns: runs(400) },
    );
  });

  /*
   * The model of a range: how often an object in it was written before each revision, and the chunks made of it. A chunk
   * serves all revisions from the one that it was made for to the next write; the newest one also those since the last.
   */
  it("are made once for the revisions between two writes into their range", () => {
    const steps = fc.oneof(
      fc.record({ do: fc.constant("write" as const), name: fc.nat(8).map(key) }),
      fc.record({ do: fc.constant("keep" as const) }),
      fc.record({ do: fc.constant("list" as const), which }),
    );
    fc.assert(
      fc.property(fc.array(steps, sizes), (taken) => {
        const world = new World(9);
        const kept: Past[] = [now(world)];
        const ranges = world.list().map(({ items }) => {
          const known = { items, from: world.cache.revision };
          return { keys: items.map((object) => object.key), known: [known], newest: known };
        });
        const writes: { name: string; revision: number }[] = [];
        for (const step of taken) {
          if (step.do === "write") {
            world.write(step.name);
            writes.push({ name: step.name, revision: world.cache.revision });
          } else if (step.do === "keep") kept.push(now(world));
          else {
            const past = step.which === undefined ? undefined : kept[step.which % kept.length];
            const { state, revision } = past ?? now(world);
            const chunks = world.list(all, state, revision);
            expect(chunks).toHaveLength(ranges.length);
            for (const [i, range] of ranges.entries()) {
              const items = chunks[i]?.items ?? [];
              const versionAt = (at: number): number =>
                writes.filter(({ name, revision: of }) => of <= at && range.keys.includes(name))
                  .length;
              const version = versionAt(revision);
              const same = range.known.filter(({ from }) => versionAt(from) === version);
              const found =
                same.find(({ from }) => from <= revision) ??
                same.find((chunk) => chunk === range.newest);
              if (found === undefined) {
                const made = { items, from: revision };
                expect(range.known.map((chunk) => chunk.items)).not.toContain(items);
                range.known.push(made);
                if (version === versionAt(world.cache.revision)) range.newest = made;
              } else {
                expect(found.items).toBe(items);
                found.from = Math.min(found.from, revision);
              }
            }
          }
        }
      }),
      { numRuns: runs(400) },
    );
  });

  it.each([
    ["the whole list", 3, true],
    ["the whole list", 3, false],
    ["a part of it", 12, true],
    ["a part of it", 12, false],
  ])(
    "learn of later writes where two readers have made %s, of %i objects, at the same time: the one from the start first: %s",
    (_, count, isFirst) => {
      const world = new World(count);
      const filter = slowFilter();
      const list = world.lists.open(filter);
      const { state, revision } = now(world);
      const works = [undefined, key(0)].map((after) => list.chunk(after, revision, state));
      for (const work of works) expect(work.next().done).toBe(false);
      for (const work of isFirst ? works : works.toReversed()) finish(work);
      world.write(key(1));
      expectWhole(world, filter);
    },
  );

  it("always equal the state, for any writes between lists", () => {
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
            const { items, last } = world.after(step.name, all, state.snapshot(), revision);
            const following = [...state.range("", step.name)];
            expect(items).toEqual(following.slice(0, items.length));
            const next = following[items.length];
            // The next chunk begins after this one, and none follows the last one.
            if (last === undefined) expect(next).toBeUndefined();
            else if (next !== undefined) expect(compareKeys(last, next.key)).toBeLessThan(0);
          } else {
            const { state, revision } = step.do === "past" ? past : world.cache;
            const chunks = world.list(undefined, state.snapshot(), revision);
            expect(objectsOf(chunks)).toEqual([...state.range("")]);
            // All of them are cached now.
            expect(rebuilt(chunks, world.list(undefined, state.snapshot(), revision))).toEqual([]);
          }
        }
      }),
      { numRuns: runs(300) },
    );
  });
});
