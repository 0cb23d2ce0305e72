import { describe, expect, it } from "vitest";
import { StateReader } from "../../../src/cacher/list/state-reader.ts";
import type { CachedState, CacheListRequest } from "../../../src/cacher/request/request.ts";
import { Selection } from "../../../src/cacher/request/selection.ts";
import { Shard } from "../../../src/cacher/request/shard.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { parseFieldSelector } from "../../../src/selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../../src/selector/parse-label-selector.ts";
import { finish } from "../finish.ts";
import { object, text } from "../objects.ts";
import { any, countNamedSpy, exact, keysOf, World } from "./page-world.ts";

describe("A page of the cache", () => {
  it("is of the newest state, or of that at a revision since which nothing has changed", () => {
    const world = new World();
    world.write("k2");
    world.progress(9);
    for (const [at, revision] of [
      [any, 9],
      [exact(9), 9],
      [exact(6), 6],
      [exact(7), 7],
    ] as const) {
      const page = world.list({ at });
      expect(page).toMatchObject({ revision, next: undefined, remaining: 0 });
      expect(keysOf(page)).toBe("k1=old k2=new k3=old k4=old k5=old");
    }
    expect(world.retained.stats().snapshots).toBe(0);
  });

  it("is of an older state as long as the cache has all events since", () => {
    const world = new World();
    world.write("k2");
    world.write("k3", "DELETED");
    expect(keysOf(world.list({ at: exact(5) }))).toBe("k1=old k2=old k3=old k4=old k5=old");
    expect(keysOf(world.list({ at: exact(6) }))).toBe("k1=old k2=new k3=old k4=old k5=old");
    world.snapshots.clear();
    for (let i = 0; i < 30; i++) world.write("k5");
    expect(world.list({ at: exact(6) })).toBeUndefined();
  });

  it("says how many objects follow, and is continued at its revision, whatever is written meanwhile", () => {
    const world = new World();
    const first = world.list({ limit: 2 });
    expect(first).toMatchObject({ revision: 5, next: "k2", remaining: 3 });
    world.write("k3");
    world.write("k9", "ADDED");
    const second = world.list({ limit: 2, startAfter: "k2", at: exact(5) });
    expect(second).toMatchObject({ revision: 5, next: "k4", remaining: 1 });
    expect(keysOf(second)).toBe("k3=old k4=old");
    const third = world.list({ limit: 2, startAfter: "k4", at: exact(5) });
    expect(third).toMatchObject({ revision: 5, next: undefined, remaining: 0 });
    expect([keysOf(third), world.retained.stats().snapshots]).toEqual(["k5=old", 1]);
  });

  it("has the number of objects that follow from the page before, with which they are counted once", () => {
    const world = new World();
    const counted = countNamedSpy();
    const page = { limit: 1, prefix: "k" };
    world.list(page);
    for (const [key, remaining] of [
      ["k1", 3],
      ["k2", 2],
    ] as const) {
      expect(world.list({ ...page, startAfter: key, at: exact(5) })).toMatchObject({ remaining });
    }
    expect(counted).toHaveBeenCalledTimes(1);
    // A page that no other has announced.
    expect(world.list({ ...page, startAfter: "k1a", at: exact(5) })).toMatchObject({
      remaining: 3,
    });
    expect(counted).toHaveBeenCalledTimes(2);
  });

  it("with a predicate does not say how many follow, but whether any does", () => {
    const world = new World();
    const request = { limit: 2, predicate: ({ key }: { key: string }) => key !== "k2" };
    const first = world.list(request);
    expect(first).toMatchObject({ next: "k3", remaining: undefined });
    expect(keysOf(first)).toBe("k1=old k3=old");
    const second = world.list({ ...request, startAfter: "k3", at: exact(5) });
    expect(second).toMatchObject({ next: undefined, remaining: 0 });
    expect(world.list({ ...request, limit: 9 })).toMatchObject({ next: undefined, remaining: 0 });
  });

  it("needs no snapshot of the state if its chunks are cached, unless another page follows", () => {
    const world = new World();
    world.list();
    let snapshots = 0;
    const { state } = world.cache;
    const snapshot = state.snapshot.bind(state);
    state.snapshot = () => {
      snapshots++;
      return snapshot();
    };
    world.list();
    expect(snapshots).toBe(0);
    world.list({ limit: 2 });
    expect(snapshots).toBe(1);
  });

  it("is made in steps, of the state when it began", () => {
    const world = new World(9_000);
    world.list();
    const before = [...world.cache.state.range("")];
    const work = world.pages.list({ prefix: "", limit: 0, at: any });
    expect(work.next().done).toBe(false);
    world.write("k18999");
    world.write("k20000", "ADDED");
    const page = finish(work);
    expect([page?.revision, page?.historyId]).toEqual([9_000, "first"]);
    expect(page?.items).toEqual(before);
  });

  it("is of the state when it began, also where it is made after a step", () => {
    const world = new World(9_000);
    // Makes the chunks of the first 6,000 objects.
    world.list({ limit: 4_500 });
    world.snapshots.clear();
    const work = world.pages.list({ prefix: "", limit: 0, at: any });
    expect(work.next().done).toBe(false);
    world.write("k18999");
    expect(finish(work)?.items.at(-1)?.modRevision).toBe(9_000);
  });

  it.each([
    [6_000, 0],
    [9_000, 1],
    [13_000, 2],
  ])("of %i objects, in chunks of 2,000, is made with %i pauses", (count, expected) => {
    const world = new World(count);
    world.list();
    const work = world.pages.list({ prefix: "", limit: 0, at: any });
    let pauses = 0;
    while (work.next().done !== true) pauses++;
    expect(pauses).toBe(expected);
  });

  it("of a selection or a shard does not say how many follow either", () => {
    const world = new World();
    const parsed = [parseLabelSelector("!a"), parseFieldSelector("")] as const;
    const selection = new Selection(...parsed, () => noAttributes);
    const shard = new Shard([{ first: 0n, last: 2n ** 64n - 1n }]);
    for (const request of [{ selection }, { shard }])
      expect(world.list({ ...request, limit: 2 })).toMatchObject({
        ...{ next: "k2", remaining: undefined },
      });
  });

  it("is undefined if the cached state is replaced while it is made", () => {
    const world = new World(9_000);
    world.list();
    const work = world.pages.list({ prefix: "", limit: 8_500, at: any });
    expect(work.next().done).toBe(false);
    world.cache.replace([object("other", 1)], 1);
    expect(finish(work)).toBeUndefined();
    expect(world.retained.stats().snapshots).toBe(0);
  });

  it("is undefined if the cached state is replaced while the objects that follow are counted", () => {
    const world = new World();
    const { countNamed } = OrderedStore.prototype;
    OrderedStore.prototype.countNamed = function* (...args) {
      world.cache.replace([object("other", 1)], 1);
      yield;
      return yield* countNamed.apply(this, args);
    };
    try {
      expect(world.list({ limit: 2 })).toBeUndefined();
    } finally {
      OrderedStore.prototype.countNamed = countNamed;
    }
  });
});

describe("The number of objects of a list", () => {
  it.each([
    ["all", {}, 4],
    ["those with its prefix, whatever its limit", { prefix: "k1", limit: 1 }, 1],
    ["those that match its predicate", { predicate: ({ key }: StoredObject) => key > "k3" }, 2],
    ["all at an older revision", { at: exact(5) }, 5],
    [
      "those that match at an older revision",
      { at: exact(5), predicate: ({ key }: StoredObject) => key < "k4" },
      3,
    ],
  ])("is of %s", (_, request: Partial<CacheListRequest>, remaining) => {
    const world = new World();
    world.write("k3", "DELETED");
    const revision = request.at === undefined ? 6 : 5;
    const page = world.list({ ...request, countOnly: true });
    expect(page).toMatchObject({ revision, historyId: "first", remaining, items: [] });
    expect(page?.next).toBeUndefined();
  });

  it("is undefined if the cached state is replaced while they are counted", () => {
    const world = new World(9_000);
    const request = { prefix: "", limit: 0, at: any, countOnly: true };
    const work = world.pages.list({ ...request, predicate: () => true });
    expect(work.next().done).toBe(false);
    world.cache.replace([object("other", 1)], 1);
    expect(finish(work)).toBeUndefined();
  });
});

describe("An object of the cache", () => {
  it("is the newest, or that at a revision, as long as the cache has all events since", () => {
    const world = new World();
    world.write("k2");
    world.write("k3", "DELETED");
    world.progress(9);
    expect(world.get("k2", any)).toMatchObject({ revision: 9, object: { modRevision: 6 } });
    expect(world.get("x", any)).toEqual({ revision: 9, historyId: "first", object: undefined });
    expect(world.get("k2", exact(8))).toMatchObject({ revision: 8, object: { modRevision: 6 } });
    expect(world.get("k3", exact(7))).toEqual({
      ...{ revision: 7, historyId: "first", object: undefined },
    });
    expect(world.get("k3", exact(6))).toMatchObject({ historyId: "first" });
    expect(world.get("k3", exact(6))).toMatchObject({ revision: 6, object: { modRevision: 3 } });
    expect(world.get("k2", exact(5))).toMatchObject({ revision: 5, object: { modRevision: 2 } });
    expect(world.get("k2", exact(4))).toBeUndefined();
  });
});

describe("A state of the cache", () => {
  it.each([
    ["the newest", undefined, 9, ["k1=old", "k2=new", "k4=old", "k5=old"]],
    ["at the revision of the last change", 7, 7, ["k1=old", "k2=new", "k4=old", "k5=old"]],
    ["at an older revision", 5, 5, ["k1=old", "k2=old", "k3=old", "k4=old", "k5=old"]],
  ])("is that of all keys, or of a prefix: %s", (_, revision, at, values) => {
    const world = new World();
    world.write("k2");
    world.write("k3", "DELETED");
    world.progress(9);
    const all = world.read({ scope: { prefix: "" }, revision });
    expect(all).toMatchObject({ revision: at, newest: 9, values, count: values.length });
    const one = world.read({ scope: { prefix: "k5" }, revision });
    expect(one).toMatchObject({ revision: at, values: ["k5=old"], count: 1 });
  });

  it("is read from the last key down as well", () => {
    const world = new World();
    world.write("k2");
    for (const revision of [undefined, 5])
      expect([...(world.read({ scope: { prefix: "" }, revision })?.reversed ?? [])]).toEqual(
        [...(world.read({ scope: { prefix: "" }, revision })?.objects ?? [])].toReversed(),
      );
  });

  it("that is retained is not evicted at the bound of those that none reads", () => {
    const world = new World();
    const retained = new RetainedSnapshots(world.cache, { idleBytes: 0, bytes: 1e9 });
    const states = new StateReader(world.cache, world.snapshots, retained);
    finish(
      states.read({ scope: { prefix: "" }, at: any }, function* (read: CachedState) {
        yield;
        read.retain(() => {});
      }),
    );
    world.write("k1");
    retained.enforceLimits();
    expect(retained.stats().snapshots).toBe(1);
  });

  it("may be that of one key", () => {
    const world = new World();
    world.write("k2");
    world.write("k3", "DELETED");
    const read = (key: string, revision?: number) => world.read({ scope: { key }, revision });
    expect(read("k2")).toMatchObject({ revision: 7, newest: 7, values: ["k2=new"], count: 1 });
    expect(read("k2", 5)).toMatchObject({ revision: 5, newest: 7, values: ["k2=old"], count: 1 });
    expect(read("k3")).toMatchObject({ values: [], count: 0 });
    expect(read("k2", 4)).toBeUndefined();
    read("k2")?.retain(() => {})();
    expect(world.retained.stats().snapshots).toBe(0);
  });

  it("is undefined for a revision that the cache has not reached, or whose events it no longer has", () => {
    const world = new World();
    world.write("k2");
    expect(world.read({ scope: { prefix: "" }, revision: 7 })).toBeUndefined();
    expect(world.read({ scope: { prefix: "" }, revision: 4 })).toBeUndefined();
    expect(world.read({ scope: { prefix: "" }, revision: 6 })).toBeDefined();
  });

  it("does not change while it is read, and counts among the retained ones until it is released or evicted", () => {
    const world = new World();
    const state = world.read({ scope: { prefix: "" } });
    let evictions = 0;
    const release = state?.retain(() => evictions++);
    world.write("k1");
    expect([...(state?.objects ?? [])].map(({ value }) => text(value))[0]).toBe("old");
    expect(world.retained.stats().snapshots).toBe(1);
    expect(world.retained.stats().bytes).toBeGreaterThan(0);
    release?.();
    expect(world.retained.stats().snapshots).toBe(0);
    const bounded = new RetainedSnapshots(world.cache, { idleBytes: 0, bytes: 0 });
    const states = new StateReader(world.cache, world.snapshots, bounded);
    finish(
      states.read({ scope: { prefix: "" }, at: any }, function* (read: CachedState) {
        yield;
        read.retain(() => evictions++);
      }),
    );
    world.write("k1");
    bounded.enforceLimits();
    expect([evictions, bounded.stats().snapshots]).toEqual([1, 0]);
  });
});
