import { describe, expect, it } from "vitest";
import type { TimeSlicedWork } from "../../../src/base/event-loop-turns.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import type { ListChunk } from "../../../src/cacher/list/list-chunk.ts";
import { Selection } from "../../../src/cacher/request/selection.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { parseFieldSelector } from "../../../src/selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../../src/selector/parse-label-selector.ts";
import { finish } from "../finish.ts";
import { object } from "../objects.ts";

import { all, filterOf, key, objectsOf, rebuilt, World } from "./list-world.ts";

describe("The chunks of a list", () => {
  it("hold all objects in order, with their size and where the next chunk begins", () => {
    const world = new World(10);
    const chunks = world.list();
    expect(objectsOf(chunks)).toEqual([...world.cache.state.range("")]);
    expect(chunks.map(({ items, last }) => [items.length, last])).toEqual([
      [3, "k002"],
      [3, "k005"],
      [3, "k008"],
      [1, undefined],
    ]);
    expect(chunks[3]?.estimatedBytes).toBe(25_000 + 4 + 64);
  });

  it("are the same for all readers of the same list", () => {
    const world = new World(10);
    expect(rebuilt(world.list(), world.list())).toEqual([]);
    const narrow = filterOf("k00");
    expect(rebuilt(world.list(), world.list(narrow)).length).toBeGreaterThan(0);
    expect(rebuilt(world.list(narrow), world.list(narrow))).toEqual([]);
  });

  it("are not shared between lists with function predicates", () => {
    const world = new World(4);
    const odd = world.list(filterOf("", ({ key }) => key === "k001"));
    expect(objectsOf(odd).map(({ key }) => key)).toEqual(["k001"]);
    expect(rebuilt(odd, world.list()).length).toBe(2);
  });

  it.each([
    ["a write into it", (world: World) => world.write("k004"), 1],
    ["a new object in it", (world: World) => world.write("k004a"), 1],
    ["a deletion in it", (world: World) => world.delete("k005"), 1],
    ["a write into two", (world: World) => [world.write("k000"), world.write("k009")], 2],
    ["a write after the last one", (world: World) => world.write("z"), 1],
  ])("are made again only where they changed: %s", (_name, change, count) => {
    const world = new World(10);
    const before = world.list();
    change(world);
    const after = world.list();
    expect(objectsOf(after)).toEqual([...world.cache.state.range("")]);
    expect(rebuilt(before, after).length).toBe(count);
  });

  it("are not made again after a write outside of the scope of their list", () => {
    const world = new World(10);
    const narrow = filterOf("k00");
    const before = world.list(narrow);
    world.write("z");
    expect(rebuilt(before, world.list(narrow))).toEqual([]);
  });

  it("belong to the requested revision, also to an older one", () => {
    const world = new World(10);
    const before = world.list();
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    world.list();
    const then = world.list(all, past.state, past.revision);
    expect(objectsOf(then)).toEqual(objectsOf(before));
    // They are cached like other chunks, also after newer ones have replaced them.
    expect(rebuilt(before, then)).toEqual([]);
    // The older one has not replaced the current one.
    expect(objectsOf(world.list())).toEqual([...world.cache.state.range("")]);
  });

  it("do not outlive their history", () => {
    const world = new World(10);
    world.list();
    const other = [object("k000", 1, "other")];
    world.cache.replace(other, 11);
    expect(objectsOf(world.list())).toEqual(other);
  });

  it("are found only while they are cached, and so is their list", () => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    world.lists.open(filterOf("never asked"));
    expect(world.lists.size).toBe(0);
    for (let i = 0; i < 10; i++) {
      world.list(filterOf(`none-${i}`), past.state, past.revision);
    }
    world.list();
    expect(world.lists.size).toBe(11);
    world.kept.expire();
    world.kept.expire();
    expect(world.lists.size).toBe(0);
  });

  it("of a list that was replaced while a reader held it do not replace those of the current one", () => {
    const world = new World(10);
    const held = world.lists.open(all);
    const current = world.lists.open(all);
    const { revision, state } = world.cache;
    finish(current.chunk(undefined, revision, state.snapshot()));
    finish(held.chunk(undefined, revision, state.snapshot()));
    expect(world.lists.open(all)).toBe(current);
    world.kept.expire();
    finish(current.chunk(undefined, revision, state.snapshot()));
    // Evicts those of the held list.
    world.kept.expire();
    expect(world.lists.open(all)).toBe(current);
  });

  it("of an old history do not evict those of the current one", () => {
    const world = new World(10);
    world.list();
    world.cache.replace([object("k000", 1, "other")], 11);
    world.kept.expire();
    world.list();
    // The old chunks, which have the same name, are evicted now.
    world.kept.expire();
    expect(world.lists.size).toBe(1);
  });

  it("are valid at all revisions between changes in their range", () => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    const now = world.list();
    const then = world.list(all, past.state, past.revision);
    expect(rebuilt(now, then).map(({ items }) => items.map((object) => object.key))).toEqual([
      ["k003", "k004", "k005"],
    ]);
    expect(objectsOf(then)).toEqual([...past.state.range("")]);
    // A chunk made for an older revision is shared by all lists still at that revision.
    expect(rebuilt(then, world.list(all, past.state, past.revision))).toEqual([]);
  });

  it("are made once by all their readers, which share the work", () => {
    const objects = Array.from({ length: 3_000 }, (_, i) => object(`k${1_000 + i}`, i + 1));
    const world = new World(0);
    world.cache.replace(objects, 3_001);
    let looked = 0;
    const counting = filterOf("", () => {
      looked++;
      return true;
    });
    const lists = new ListCache(world.cache, world.kept, { bytes: Infinity, scanned: 10_000 });
    const state = world.cache.state.snapshot();
    const works = [1, 2].map(function* (): TimeSlicedWork<ListChunk> {
      return yield* lists.open(counting).chunk(undefined, 3_001, state);
    });
    const [one, other] = works;
    expect([one?.next().done, other?.next().done]).toEqual([false, false]);
    expect(other && finish(other)).toBe(one && finish(one));
    expect(looked).toBe(3_000);
    world.kept.expire();
    world.kept.expire();
    expect(lists.size).toBe(0);
  });

  it("are made once also if all others of their list are evicted meanwhile", () => {
    const world = new World(0);
    const objects = Array.from({ length: 3_000 }, (_, i) => object(`k${1_000 + i}`, i + 1));
    world.cache.replace(objects, 3_000);
    let looked = 0;
    const counting = filterOf("", () => {
      looked++;
      return true;
    });
    const lists = new ListCache(world.cache, world.kept, { bytes: Infinity, scanned: 1_000 });
    const state = world.cache.state.snapshot();
    const follow = (key?: string) => lists.open(counting).chunk(key, 3_000, state);
    const first = finish(follow());
    const { last } = finish(follow(first.last));
    const one = follow(last);
    expect(one.next().done).toBe(false);
    // The second one is still used, and then is not.
    for (let i = 0; i < 3; i++) {
      world.kept.expire();
      if (i === 0) finish(follow(first.last));
      expect(lists.size).toBe(1);
    }
    expect(world.kept.bytes).toBe(0);
    const other = follow(last);
    expect(finish(other)).toBe(finish(one));
    expect(looked).toBe(3_000);
  });

  it("leave no list behind if the reader that makes its only one gives up", () => {
    const world = new World(0);
    const objects = Array.from({ length: 1_000 }, (_, i) => object(`k${1_000 + i}`, i + 1));
    world.cache.replace(objects, 1_000);
    const list = world.lists.open(filterOf("", () => true));
    const work = list.chunk(undefined, 1_000, world.cache.state.snapshot());
    expect([work.next().done, world.lists.size]).toEqual([false, 1]);
    work.return(undefined as never);
    expect(world.lists.size).toBe(0);
  });

  it("keep their revision if an object is written while they are made", () => {
    const objects = Array.from({ length: 10_000 }, (_, i) => object(`k${10_000 + i}`, i + 1));
    const world = new World(0);
    world.cache.replace(objects, 10_001);
    const lists = new ListCache(world.cache, world.kept, { bytes: Infinity, scanned: 20_000 });
    const state = world.cache.state.snapshot();
    const work = lists.open(all).chunk(undefined, 10_001, state);
    expect(work.next().done).toBe(false);
    world.write("k10003");
    expect(finish(work).items).toEqual(objects);
    const now = world.cache.state.snapshot();
    const after = finish(lists.open(all).chunk(undefined, 10_002, now));
    expect(after.items).toEqual([...now.range("")]);
  });

  it("are made in steps that get shorter with more requirements", () => {
    const objects = Array.from({ length: 1_000 }, (_, i) => object(`k${1_000 + i}`, i + 1));
    const steps = (requirements: number): number => {
      const world = new World(0);
      world.cache.replace(objects, 1_001);
      const labels = Array.from({ length: requirements }, (_, i) => `!absent-${i}`).join(",");
      const parsed = [parseLabelSelector(labels), parseFieldSelector("")] as const;
      const selection = new Selection(...parsed, () => noAttributes);
      const filter = new Filter({ scope: { prefix: "" }, selection, withPrevious: false });
      const work = world.lists.open(filter).chunk(undefined, 1_001, world.cache.state.snapshot());
      let count = 1;
      while (work.next().done !== true) count++;
      return count;
    };
    expect(steps(1)).toBe(1);
    expect(steps(8)).toBe(3);
    expect(steps(1_000)).toBeGreaterThan(3);
  });

  it("of an old history are not valid beyond the changes that their list has examined", () => {
    const world = new World(10);
    const list = world.lists.open(all);
    const [revision, state] = [world.cache.revision, world.cache.state.snapshot()];
    const first = finish(list.chunk(undefined, revision, state));
    // The list examines this change only on the next request, which comes after the cached state is replaced.
    world.write("k001");
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.cache.replace([object("k000", 1, "other")], revision);
    expect(finish(list.chunk(undefined, revision, state))).toBe(first);
    const chunk = finish(list.chunk(undefined, past.revision, past.state));
    expect(chunk.items).toEqual([...past.state.range("")].slice(0, chunk.items.length));
  });

  it("are evicted when no reader has listed for a while", () => {
    const world = new World(10);
    const before = world.list();
    world.kept.expire();
    world.kept.expire();
    expect(rebuilt(before, world.list()).length).toBe(4);
  });

  it("keep their borders behind one that has grown, up to twice its normal size", () => {
    const world = new World(10);
    const before = world.list();
    for (const letter of "abc") world.write(`k001${letter}`);
    expect(rebuilt(before, world.list()).length).toBe(1);
    for (const letter of "defgh") world.write(`k001${letter}`);
    const after = world.list();
    expect(Math.max(...after.map(({ estimatedBytes }) => estimatedBytes))).toBeLessThan(175_000);
    expect(objectsOf(after)).toEqual([...world.cache.state.range("")]);
  });

  it("leave objects added after the last one to the chunk that begins there", () => {
    const world = new World(6);
    // A reader requests the objects after the last one, which are cached as a chunk of their own.
    world.after(key(5));
    world.list();
    world.write(key(6));
    expect(objectsOf(world.list()).at(-1)?.key).toBe(key(6));
  });

  it.each([
    ["4,096 changes since the last request are examined", 4_096, 1],
    ["more are not: all chunks count as changed", 4_097, 4],
  ])("%s", (_, changes, count) => {
    const world = new World(10);
    for (let i = 0; i < 10; i++) world.write("k000");
    const before = world.list();
    for (let i = 0; i < changes; i++) world.write("k000", "small");
    expect(rebuilt(before, world.list()).length).toBe(count);
  });

  it.each([
    ["1,000 changes between the revisions are examined", 1_000, 1],
    ["more are not: all chunks count as changed", 1_001, 4],
  ])("of another revision are shared if they are the same there: %s", (_, changes, count) => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    for (let i = 0; i < changes; i++) world.write("k000");
    const now = world.list();
    const then = world.list(all, past.state, past.revision);
    expect(rebuilt(now, then).length).toBe(count);
    expect(objectsOf(then)).toEqual([...past.state.range("")]);
    expect(rebuilt(then, world.list(all, past.state, past.revision))).toEqual([]);
  });

  it("made for an older revision are valid until the first change in their range", () => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    const between = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.write("k004");
    const then = world.list(all, past.state, past.revision);
    const later = world.list(all, between.state, between.revision);
    expect(rebuilt(then, later).map(({ items }) => items[0]?.key)).toEqual(["k003"]);
    expect(rebuilt(later, world.list()).map(({ items }) => items[0]?.key)).toEqual(["k003"]);
    expect(rebuilt(then, world.list(all, past.state, past.revision))).toEqual([]);
    expect(rebuilt(later, world.list(all, between.state, between.revision))).toEqual([]);
  });

  it("are made again if the event window no longer has what has changed since", () => {
    const world = new World(10, { ...defaultEventWindowBounds, minEvents: 0, maxEvents: 3 });
    const before = world.list();
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    for (let i = 0; i < 4; i++) world.write("k000");
    const after = world.list();
    expect(rebuilt(before, after).length).toBe(4);
    // Those of before are known to be valid then.
    expect(rebuilt(before, world.list(all, past.state, past.revision))).toEqual([]);
    world.kept.expire();
    world.kept.expire();
    const now = world.list();
    const then = world.list(all, past.state, past.revision);
    expect(rebuilt(now, then).length).toBe(4);
    expect(rebuilt(then, world.list(all, past.state, past.revision))).toEqual([]);
  });

  it("behind a key within an outdated one are made from where that began", () => {
    const world = new World(10);
    const before = world.list();
    world.write("k004");
    const rest = world.after("k004");
    expect(rest.items.map((item) => item.key)).toEqual(["k005"]);
    expect(rest.last).toBe("k005");
    expect(rebuilt(before, world.list()).length).toBe(1);
  });

  it("behind a key are a part of the whole one, which is made for it", () => {
    const world = new World(10);
    let looked = 0;
    const counting = filterOf("", () => {
      looked++;
      return true;
    });
    const before = world.list(counting);
    world.write("k004");
    looked = 0;
    expect(world.after("k004", counting).items.map((item) => item.key)).toEqual(["k005"]);
    expect(looked).toBe(3);
    expect(rebuilt(before, world.list(counting))).toHaveLength(1);
    expect(looked).toBe(3);
  });

  it("begin where they would without those that were evicted", () => {
    const world = new World(10);
    const list = world.lists.open(all);
    const next = (after?: string) => {
      const { revision, state } = world.cache;
      return finish(list.chunk(after, revision, state.snapshot()));
    };
    next(next().last);
    for (const letter of "ab") world.write(`k000${letter}`);
    expect(next().items).toHaveLength(5);
    for (let i = 0; i < 2; i++) world.kept.expire();
    expect(next().items).toHaveLength(3);
  });

  it("of one older revision are evicted without those of another", () => {
    const world = new World(10);
    const [one, other] = [1, 2].map(() => {
      const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
      world.list();
      world.write("k004");
      return past;
    });
    if (one === undefined || other === undefined) throw new Error("expected two states");
    const list = ({ state, revision }: typeof one) => world.list(all, state, revision);
    world.list();
    const [ofOne, ofOther] = [list(one), list(other)];
    world.kept.expire();
    list(one);
    world.kept.expire();
    expect(rebuilt(ofOne, list(one))).toEqual([]);
    expect(rebuilt(ofOther, list(other)).map(({ items }) => items[0]?.key)).toEqual(["k003"]);
  });

  it("behind the key that the one before now ends at begin there", () => {
    const world = new World(10);
    world.list();
    for (const letter of "abcd") world.write(`k003${letter}`);
    // Six objects fill twice the bounds: k003, the four, and k004.
    expect(world.after("k004").items.map((item) => item.key)).toEqual(["k005"]);
  });

  it("behind a key that the one before no longer reaches begin there", () => {
    const world = new World(10);
    world.list();
    for (const letter of "abcdefgh") world.write(`k003${letter}`);
    expect(world.after("k005").items.map((item) => item.key)).toEqual(["k006", "k007", "k008"]);
    expect(world.after("k004a").items.map((item) => item.key)[0]).toBe("k005");
    expect(objectsOf(world.list())).toEqual([...world.cache.state.range("")]);
  });

  it("count twice their objects, for their encodings, and some 2 KB each", () => {
    const world = new World(10);
    const chunks = world.list();
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.estimatedBytes, 0);
    const each = (world.kept.bytes - 2 * bytes) / chunks.length;
    expect(each).toBeGreaterThan(2_200);
    expect(each).toBeLessThan(2_400);
    world.kept.expire();
    world.kept.expire();
    expect(world.kept.bytes).toBe(0);
  });

  it("are evicted one by one: those of older revisions, and the newest", () => {
    const world = new World(10);
    const past = { state: world.cache.state.snapshot(), revision: world.cache.revision };
    world.list();
    world.write("k004");
    world.list();
    world.kept.expire();
    const then = world.list(all, past.state, past.revision);
    world.kept.expire();
    // The newest one of k004 was not used since, and is made again.
    expect(rebuilt(then, world.list(all, past.state, past.revision))).toEqual([]);
    expect(rebuilt(then, world.list()).map(({ items }) => items[0]?.key)).toEqual(["k003"]);
    expect(objectsOf(world.list())).toEqual([...world.cache.state.range("")]);
    world.kept.expire();
    world.kept.expire();
    expect(world.lists.size).toBe(0);
  });
});
