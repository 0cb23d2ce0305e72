import { describe, expect, it, vi } from "vitest";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { PageReader } from "../../../src/cacher/list/page-reader.ts";
import { StateReader } from "../../../src/cacher/list/state-reader.ts";
import type {
  CachedState,
  CacheListRequest,
  CacheStateRequest,
} from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { HistoricalSnapshots } from "../../../src/cacher/state/historical-snapshots.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { ListResult, RevisionRequirement } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { finish } from "../finish.ts";
import { event, object, text } from "../objects.ts";

const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });
const any: RevisionRequirement = { match: "ANY" };

/** A cache of the objects k1 to k5, written at the revisions 1 to 5, with the last few events only. */
class World {
  readonly clock = new FakeClock();
  readonly cache: WatchCache;
  readonly retained: RetainedSnapshots;
  readonly snapshots: HistoricalSnapshots;
  readonly pages: PageReader;
  readonly states: StateReader;

  constructor(count = 5) {
    const bounds = { maxEvents: 20, minEvents: 0, maxBytes: 1e9, maxAgeMs: 1e9 };
    this.cache = new WatchCache(bounds as never, this.clock);
    const objects = Array.from({ length: count }, (_, i) => object(`k${i + 1}`, i + 1, "old"));
    this.cache.replace(
      count < 10 ? objects : objects.map((_, i) => object(`k${10_000 + i}`, i + 1)),
      count,
      "first",
    );
    this.retained = new RetainedSnapshots(this.cache, { idleBytes: 1e9, bytes: 1e9 });
    this.snapshots = new HistoricalSnapshots(this.cache, this.clock, this.retained);
    const lists = new ListCache(this.cache, new ChunkCache(), { bytes: 1e9, scanned: 2_000 });
    this.pages = new PageReader(this.cache, this.snapshots, lists);
    this.states = new StateReader(this.cache, this.snapshots, this.retained);
  }

  write(key: string, type: "ADDED" | "MODIFIED" | "DELETED" = "MODIFIED"): void {
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event(type, key, revision, "new")]));
  }

  /** The store has reached this revision, by other keys. */
  progress(revision: number): void {
    this.cache.apply(new WatchBatch(revision, []));
  }

  list(request: Partial<CacheListRequest> = {}): ListResult | undefined {
    return finish(this.pages.list({ prefix: "", limit: 0, at: any, ...request }));
  }

  get(key: string, at: RevisionRequirement) {
    return finish(this.pages.get({ key, at }));
  }

  /** What a reader of a state finds. */
  read(request: Omit<CacheStateRequest, "at">) {
    return finish(
      this.states.read({ ...request, at: any }, function* (state: CachedState) {
        yield;
        const values = [...state.objects].map(({ key, value }) => `${key}=${text(value)}`);
        return { ...state, values, count: yield* state.count() };
      }),
    );
  }
}

const keysOf = (page: ListResult | undefined): string =>
  page?.items.map(({ key, value }) => `${key}=${text(value)}`).join(" ") ?? "none";

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
    let counted = 0;
    const { countNamed } = OrderedStore.prototype;
    OrderedStore.prototype.countNamed = function (...args) {
      counted++;
      return countNamed.apply(this, args);
    };
    try {
      const page = { limit: 1, prefix: "k" };
      world.list(page);
      for (const [key, remaining] of [
        ["k1", 3],
        ["k2", 2],
      ] as const) {
        expect(world.list({ ...page, startAfter: key, at: exact(5) })).toMatchObject({ remaining });
      }
      expect(counted).toBe(1);
      // A page that no other has announced.
      expect(world.list({ ...page, startAfter: "k1a", at: exact(5) })).toMatchObject({
        remaining: 3,
      });
      expect(counted).toBe(2);
    } finally {
      OrderedStore.prototype.countNamed = countNamed;
    }
  });

  it("from the last key down has the number of objects that follow from the page before, of its own range only", () => {
    const world = new World();
    let counted = 0;
    const { countNamed } = OrderedStore.prototype;
    OrderedStore.prototype.countNamed = function (...args) {
      counted++;
      return countNamed.apply(this, args);
    };
    try {
      const page = { limit: 1, prefix: "k", order: "KEY_DESCENDING" } as const;
      expect(world.list(page)).toMatchObject({ next: "k5", remaining: 4 });
      for (const [key, remaining] of [
        ["k5", 3],
        ["k4", 2],
      ] as const) {
        const next = world.list({ ...page, startAfter: key, at: exact(5) });
        expect(next).toMatchObject({ remaining });
      }
      expect(counted).toBe(1);
      // The page before is one of the other list.
      const interval = { from: "k", to: "k3" };
      const other = world.list({ ...page, interval, startAfter: "k4", at: exact(5) });
      expect([keysOf(other), other?.remaining]).toEqual(["k2=old", 1]);
    } finally {
      OrderedStore.prototype.countNamed = countNamed;
    }
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
    expect(finish(work)).toMatchObject({ revision: 9_000, items: before, historyId: "first" });
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

describe("Pages in an order of revisions", () => {
  const count = 20_000;

  /** Reads all pages. `examined` counts the objects that the predicate was asked about. */
  function readAll(
    world: World,
    order: CacheListRequest["order"],
    request: Partial<CacheListRequest>,
  ) {
    let examined = 0;
    const predicate = (): boolean => {
      examined++;
      return true;
    };
    const revisions: number[] = [];
    let startAfter: string | undefined;
    let at = any;
    for (let pages = 1; ; pages++) {
      const page = world.list({ ...request, order, predicate, at, startAfter });
      if (page === undefined) throw new Error("The cache has no such page.");
      revisions.push(...page.items.map(({ modRevision }) => modRevision));
      expect(page.remaining).toBe(count - revisions.length);
      if (page.next === undefined) return { revisions, pages, examined };
      startAfter = page.next;
      at = exact(page.revision);
      // What is written meanwhile is not in the list.
      if (pages % 10 === 0) world.write("k10007");
    }
  }

  it.each([
    ["MOD_REVISION_ASCENDING", { limit: 500 }],
    ["CREATE_REVISION_DESCENDING", { limit: 500 }],
    ["MOD_REVISION_DESCENDING", { maxBytes: 100_000 }],
  ] as const)(
    "%s, with %j, look at all objects for every 8,192 of them, and not for each page",
    (order, request) => {
      const { revisions, pages, examined } = readAll(new World(count), order, request);
      const ascending = Array.from({ length: count }, (_, i) => i + 1);
      expect(revisions).toEqual(order.endsWith("_ASCENDING") ? ascending : ascending.toReversed());
      expect(pages).toBeGreaterThan(10);
      expect(examined).toBeLessThanOrEqual(4 * count);
    },
  );

  it("keep no more of a list by revision than 8,192 objects, whatever its pages have room for", () => {
    const world = new World(2 * count);
    const kept = vi.spyOn(world.snapshots, "keepSorted");
    const revisions: number[] = [];
    let last: ListResult | undefined;
    // The second page has room for 11,000 of the smallest objects.
    for (const bounds of [{ limit: 10 }, { maxBytes: 715_000 }, { limit: 100 }, { limit: 100 }]) {
      const page = { ...bounds, at: exact(2 * count), startAfter: last?.next };
      last = world.list({ ...page, order: "MOD_REVISION_ASCENDING" });
      revisions.push(...(last?.items ?? []).map(({ modRevision }) => modRevision));
      expect(last?.remaining).toBe(2 * count - revisions.length);
    }
    expect(revisions).toEqual(revisions.map((_, i) => i + 1));
    expect(kept).toHaveBeenCalledOnce();
    expect(kept.mock.calls[0]?.[2].objects.length).toBeLessThanOrEqual(8_192);
  });

  it("of two lists at the same time are those of each", () => {
    const world = new World(count);
    const next = (page: ListResult | undefined, order: CacheListRequest["order"]) =>
      world.list({ limit: 3, order, at: exact(count), startAfter: page?.next });
    let [old, young]: (ListResult | undefined)[] = [];
    for (let i = 0; i < 4; i++) {
      old = next(old, "MOD_REVISION_ASCENDING");
      young = next(young, "MOD_REVISION_DESCENDING");
      const revisions = [old, young].map((page) =>
        page?.items.map(({ modRevision }) => modRevision),
      );
      const first = [1, 2, 3].map((n) => 3 * i + n);
      expect(revisions).toEqual([first, first.map((n) => count + 1 - n)]);
    }
    // What was sorted begins behind the first page.
    expect(next(undefined, "MOD_REVISION_ASCENDING")?.items[0]?.modRevision).toBe(1);
  });
});
