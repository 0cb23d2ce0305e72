import { describe, expect, it, vi } from "vitest";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import type { ListResult } from "../../../src/storage/storage.ts";
import { finish } from "../finish.ts";
import { object } from "../objects.ts";
import { any, countNamedSpy, exact, keysOf, World } from "./page-world.ts";

describe("Pages from the last key down", () => {
  const order = "KEY_DESCENDING" as const;

  it("have the number of objects that follow from the page before, of its own range only", () => {
    const world = new World();
    const counted = countNamedSpy();
    const page = { limit: 1, prefix: "k", order };
    expect(world.list(page)).toMatchObject({ next: "k5", remaining: 4 });
    for (const [key, remaining] of [
      ["k5", 3],
      ["k4", 2],
    ] as const) {
      const next = world.list({ ...page, startAfter: key, at: exact(5) });
      expect(next).toMatchObject({ remaining });
    }
    expect(counted).toHaveBeenCalledTimes(1);
    // The page before is one of the other list.
    const interval = { from: "k", to: "k3" };
    const other = world.list({ ...page, interval, startAfter: "k4", at: exact(5) });
    expect([keysOf(other), other?.remaining]).toEqual(["k2=old", 1]);
  });

  it("end at their bounds, and are continued at their revision, whatever is written meanwhile", () => {
    const world = new World();
    const maxBytes = 2 * estimatedBytes(object("k1", 1, "old"));
    const first = world.list({ order, limit: 2 });
    expect([keysOf(first), first?.historyId]).toEqual(["k5=old k4=old", "first"]);
    expect(first).toMatchObject({ revision: 5, next: "k4", remaining: 3 });
    world.write("k3");
    world.write("k0", "ADDED");
    const second = world.list({ order, maxBytes, startAfter: "k4", at: exact(5) });
    expect([keysOf(second), second?.next, second?.remaining]).toEqual(["k3=old k2=old", "k2", 1]);
    const third = world.list({ order, startAfter: "k2", at: exact(5) });
    expect([keysOf(third), third?.next, third?.remaining]).toEqual(["k1=old", undefined, 0]);
    expect(world.retained.stats().snapshots).toBe(1);
  });

  it("with a predicate do not say how many follow, but whether any does", () => {
    const world = new World();
    const request = { order, limit: 2, predicate: ({ key }: { key: string }) => key !== "k4" };
    const first = world.list(request);
    expect([keysOf(first), first?.next, first?.remaining]).toEqual([
      ...["k5=old k3=old", "k3", undefined],
    ]);
    const second = world.list({ ...request, startAfter: "k3", at: exact(5) });
    expect([keysOf(second), second?.next, second?.remaining]).toEqual([
      ...["k2=old k1=old", undefined, 0],
    ]);
  });

  it.each([
    ["number", { limit: 2 }],
    ["bytes", { maxBytes: 2 * estimatedBytes(object("k1", 1, "old")) }],
  ])("examine no more than they have and the next one, if bounded by %s", (_, request) => {
    const world = new World(9);
    let examined = 0;
    const predicate = (): boolean => {
      examined++;
      return true;
    };
    expect(keysOf(world.list({ ...request, order, predicate }))).toBe("k9=old k8=old");
    expect(examined).toBe(3);
  });

  it("do not take the number that follows from a page of another order", () => {
    const world = new World(9);
    const other = world.list({ order: "MOD_REVISION_ASCENDING", limit: 4 });
    expect(other).toMatchObject({ next: "k4", remaining: 5 });
    const page = world.list({ order, limit: 1, startAfter: "k4", at: exact(9) });
    expect([keysOf(page), page?.remaining]).toEqual(["k3=old", 2]);
  });

  it("count what follows a key that is not in the list, as a client may make up any", () => {
    const world = new World();
    const page = { order, limit: 1, prefix: "k", startAfter: "z", at: exact(5) };
    expect(world.list(page)).toMatchObject({ next: "k5", remaining: 4 });
  });

  it("are undefined if the cached state is replaced while the objects that follow are counted", () => {
    const world = new World();
    const { countNamed } = OrderedStore.prototype;
    OrderedStore.prototype.countNamed = function* (...args) {
      world.cache.replace([object("other", 1)], 1);
      return yield* countNamed.apply(this, args);
    };
    try {
      expect(world.list({ order, limit: 2 })).toBeUndefined();
      expect(world.retained.stats().snapshots).toBe(0);
    } finally {
      OrderedStore.prototype.countNamed = countNamed;
    }
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

  it("keep 8,192 objects sorted for the next ones, whatever they may have themselves", () => {
    const world = new World(count);
    const keep = vi.spyOn(world.snapshots, "keepSorted");
    const order = "MOD_REVISION_ASCENDING";
    const first = world.list({ limit: 1, order });
    // The smallest objects have 65 bytes, and these have more.
    const request = { maxBytes: 12_000 * 65, order, at: exact(count) } as const;
    const second = world.list({ ...request, limit: 0, startAfter: first?.next });
    expect(second?.next).toBeDefined();
    expect(keep.mock.calls.map(([, , { objects }]) => objects.length)).toEqual([8_192]);
    const pages = [first, second];
    for (let next = second?.next; next !== undefined; next = pages.at(-1)?.next)
      pages.push(world.list({ ...request, limit: 3_000, startAfter: next }));
    const revisions = pages.flatMap((page) => page?.items.map(({ modRevision }) => modRevision));
    expect(revisions).toEqual(Array.from({ length: count }, (_, i) => i + 1));
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

  it.each([
    ["has never existed", "k6"],
    ["is not in its scope", "x"],
    ["was written later", "k9"],
  ])("refuse to follow an object that %s", (_, startAfter) => {
    const world = new World();
    world.write("x", "ADDED");
    world.write("k9", "ADDED");
    const order = "MOD_REVISION_ASCENDING";
    const page = { order, prefix: "k", limit: 2, startAfter, at: exact(6) } as const;
    expect(() => world.list(page)).toThrow(
      `The list has no object "${startAfter}" at this revision that a page could follow.`,
    );
    expect(keysOf(world.list({ ...page, startAfter: "k2" }))).toBe("k3=old k4=old");
  });

  it("say how many objects follow and of which history they are, and the last one leaves nothing to retain", () => {
    const order = "MOD_REVISION_DESCENDING";
    const world = new World();
    const page = world.list({ order, limit: 2 });
    expect([keysOf(page), page?.historyId]).toEqual(["k5=old k4=old", "first"]);
    expect(page).toMatchObject({ revision: 5, next: "k4", remaining: 3 });
    expect(world.retained.stats().snapshots).toBe(1);
    const single = new World();
    expect(single.list({ order })).toMatchObject({ next: undefined, remaining: 0 });
    expect(single.list({ order, startAfter: "k2", at: exact(5) })?.remaining).toBe(0);
    expect(single.retained.stats().snapshots).toBe(0);
  });

  it("keep objects sorted also if the first page was read elsewhere", () => {
    const world = new World();
    let examined = 0;
    const predicate = (): boolean => {
      examined++;
      return true;
    };
    const request = { order: "MOD_REVISION_ASCENDING", limit: 1, at: exact(5), predicate } as const;
    for (const [startAfter, next] of [
      ["k1", "k2"],
      ["k2", "k3"],
    ]) {
      expect(world.list({ ...request, startAfter })?.next).toBe(next);
      expect(examined).toBe(5);
    }
  });

  it("are undefined, and retain nothing, if the cached state is replaced while they are made", () => {
    const order = "MOD_REVISION_ASCENDING";
    for (const startAfter of [undefined, "k10004"]) {
      const world = new World(9_000);
      const work = world.pages.list({ order, prefix: "", limit: 2, at: any, startAfter });
      expect(work.next().done).toBe(false);
      world.cache.replace([object("other", 1)], 1);
      expect(finish(work)).toBeUndefined();
      expect(world.retained.stats().snapshots).toBe(0);
    }
  });
});
