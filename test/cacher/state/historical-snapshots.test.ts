import { describe, expect, it } from "vitest";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { HistoricalSnapshots } from "../../../src/cacher/state/historical-snapshots.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { RevisionRequirement } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";
import { CachedStore } from "../cached-store.ts";
import { finish } from "../finish.ts";
import { event, object } from "../objects.ts";

const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });

/** A store whose lists must not be called. */
async function selfReliant(): Promise<CachedStore> {
  const cached = await CachedStore.ready();
  const refuse = (): never => {
    throw new Error("Lists are not expected.");
  };
  cached.store.get = refuse;
  cached.store.list = refuse;
  return cached;
}

describe("A historical snapshot", () => {
  it("equals the state at its revision, for every revision in the event window", async () => {
    const write = fc.tuple(fc.constantFrom("a", "b", "c", "d"), fc.boolean());
    const writes = fc.array(fc.array(write, { minLength: 1, maxLength: 3 }), { maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(writes, async (transactions) => {
        const cached = await selfReliant();
        const model = new Map<string, string>();
        const states = new Map<number, string[]>([[1, []]]);
        for (const [i, transaction] of transactions.entries()) {
          const distinct = new Map(transaction);
          const entries = [...distinct].map(
            ([key, stays]) => [key, stays ? String(i) : null] as const,
          );
          const revision = await cached.write(...entries);
          for (const [key, value] of entries) {
            if (value === null) model.delete(key);
            else model.set(key, value);
          }
          states.set(revision, [...model].sort().flat());
        }
        for (const [revision, expected] of [...states].reverse()) {
          const { items } = await cached.cacher.list({ prefix: "", limit: 0, at: exact(revision) });
          const found = items.flatMap(({ key, value }) => [key, Buffer.from(value).toString()]);
          expect(found).toEqual(expected);
          for (const key of ["a", "b", "c", "d"]) {
            const { object, revision: at } = await cached.cacher.get({ key, at: exact(revision) });
            expect(at).toBe(revision);
            expect(object?.key).toBe(expected.includes(key) ? key : undefined);
          }
        }
      }),
      { numRuns: 50 },
    );
  });

  it("is retained for the next page of a list, even when the event window has dropped the later events", async () => {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 2, minEvents: 1 } });
    const revision = await cached.write(["a", "1"], ["b", "1"], ["c", "1"]);
    const at = exact(revision);
    const first = await cached.cacher.list({ prefix: "", limit: 1, at });
    await cached.store.compact(revision);
    for (let i = 0; i < 5; i++) await cached.write(["b", null], ["d", String(i)]);
    for (let i = 0; i < 5; i++) await cached.write(["b", "2"]);
    await cached.store.compact(await cached.store.currentRevision());
    const rest = await cached.cacher.list({ prefix: "", startAfter: first.next, limit: 0, at });
    expect(rest.items.map(({ key, modRevision }) => [key, modRevision])).toEqual([
      ["b", revision],
      ["c", revision],
    ]);
  });

  it("is dropped when no client has used it for half a minute", async () => {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 2, minEvents: 1 } });
    const revision = await cached.write(["a", "1"], ["b", "1"]);
    const at = exact(revision);
    await cached.cacher.list({ prefix: "", limit: 1, at });
    for (let i = 0; i < 5; i++) await cached.write(["c", String(i)]);
    await cached.store.compact(await cached.store.currentRevision());
    await cached.clock.elapse(31_000);
    await expect(cached.cacher.list({ prefix: "", limit: 1, at })).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
    });
  });
});

describe("Historical snapshots", () => {
  /** A cache after one list at revision 1 and one write of an object for each later revision. */
  function written(writes: number) {
    const clock = new FakeClock();
    const cache = new WatchCache(defaultEventWindowBounds, clock);
    cache.replace([object("a", 1)], 1);
    for (let revision = 2; revision <= writes + 1; revision++) {
      cache.apply(new WatchBatch(revision, [event("MODIFIED", "a", revision)]));
    }
    const retained = new RetainedSnapshots(cache, { idleBytes: 1e9, bytes: 1e9 });
    const past = new HistoricalSnapshots(cache, clock, retained);
    return { past, retained, at: (revision: number) => finish(past.at(revision)) };
  }

  it("are at most 64: the least recently used is dropped first", () => {
    const { at, retained } = written(100);
    const states = new Map<number, unknown>();
    for (let revision = 1; revision <= 64; revision++) states.set(revision, at(revision)?.state);
    expect(at(1)?.state).toBe(states.get(1));
    at(65);
    at(66);
    expect(retained.stats().snapshots).toBe(64);
    for (const revision of [1, 4, 64]) expect(at(revision)?.state).toBe(states.get(revision));
    for (const revision of [2, 3]) expect(at(revision)?.state).not.toBe(states.get(revision));
  });

  it("are rebuilt by undoing at most 10,000 events: beyond that the store is read", () => {
    const { at } = written(10_001);
    expect(at(1)).toBeUndefined();
    expect(at(2)?.state.get("a")?.modRevision).toBe(2);
  });

  it("cache the number of remaining objects for the 64 most recently expected pages, with names up to 1 Ki", () => {
    const { past, at } = written(1);
    at(1);
    past.expectPage(1, { prefix: "p".repeat(1_024) }, "a", 7);
    expect(past.following(1, { prefix: "p".repeat(1_024) }, "a")).toBeUndefined();
    for (let i = 0; i < 65; i++) past.expectPage(1, { prefix: "" }, `k${i}`, i);
    expect(past.following(1, { prefix: "" }, "k0")).toBeUndefined();
    for (let i = 1; i < 65; i++) expect(past.following(1, { prefix: "" }, `k${i}`)).toBe(i);
  });

  it("keep a sorted part of the four lists that were sorted last, one of each", () => {
    const { past, at } = written(1);
    const part = (following: number) => ({ objects: [], following });
    past.keepSorted(1, "a", part(0));
    expect(past.sorted(1, "a")).toBeUndefined();
    at(1);
    for (const [i, list] of ["a", "b", "c", "d", "a", "e"].entries()) {
      past.keepSorted(1, list, part(i));
    }
    const kept = ["a", "b", "c", "d", "e"].map((list) => past.sorted(1, list)?.following);
    expect(kept).toEqual([4, undefined, 2, 3, 5]);
  });
});

/** A cache with an event of `a` at each revision from 2 on, and its snapshots. */
function withEvents(count: number, maxEvents = 50) {
  const clock = new FakeClock();
  const bounds = { ...defaultEventWindowBounds, maxEvents };
  const cache = new WatchCache(bounds, clock);
  cache.replace([], 1);
  for (let revision = 2; revision < 2 + count; revision++) {
    const type = revision === 2 ? "ADDED" : "MODIFIED";
    cache.apply(new WatchBatch(revision, [event(type, "a", revision, String(revision))]));
  }
  const retained = new RetainedSnapshots(cache, { idleBytes: 2 ** 30, bytes: 2 ** 30 });
  const snapshots = new HistoricalSnapshots(cache, clock, retained);
  const state = (revision: number) => finish(snapshots.at(revision));
  const objectAt = (key: string, revision: number) => {
    const found = finish(snapshots.objectAt(key, revision));
    return found && (found.object?.modRevision ?? "none");
  };
  return { clock, cache, retained, snapshots, state, objectAt };
}

describe("One object of an older revision", () => {
  it("is that before its first later event, without a state that is rebuilt for it", () => {
    const { cache, objectAt, retained } = withEvents(4);
    cache.apply(new WatchBatch(6, [event("ADDED", "b", 6)]));
    cache.apply(new WatchBatch(7, [event("DELETED", "a", 7)]));
    const found = [1, 2, 3, 5, 6, 7].map((revision) => objectAt("a", revision));
    expect(found).toEqual(["none", 2, 3, 5, 5, "none"]);
    expect([5, 6, 7].map((revision) => objectAt("b", revision))).toEqual(["none", 6, 6]);
    expect(objectAt("c", 3)).toBe("none");
    expect(retained.stats().snapshots).toBe(0);
  });

  it("is not known once the event window has dropped the later events", () => {
    const { objectAt, state } = withEvents(60);
    expect([objectAt("a", 10), state(10)]).toEqual([undefined, undefined]);
    expect(objectAt("a", 12)).toBe(12);
  });

  it("is that of a snapshot that is kept, also without later events", () => {
    const { cache, state, objectAt } = withEvents(3);
    expect(state(2)?.state.get("a")?.modRevision).toBe(2);
    for (let revision = 5; revision < 70; revision++) {
      cache.apply(new WatchBatch(revision, [event("MODIFIED", "a", revision)]));
    }
    expect([objectAt("a", 2), objectAt("b", 2), objectAt("a", 3)]).toEqual([2, "none", undefined]);
  });

  it("is looked for in steps", () => {
    const { snapshots } = withEvents(40);
    const work = snapshots.objectAt("x", 5);
    expect(work.next().done).toBe(false);
    expect(work.next()).toEqual({ done: true, value: { object: undefined } });
  });
});

describe("A historical snapshot that is kept", () => {
  it("is one for concurrent callers, and for later ones", () => {
    const { snapshots, retained, state } = withEvents(300, 1_000);
    const works = [snapshots.at(3), snapshots.at(3)];
    for (const work of works) expect(work.next().done).toBe(false);
    const [first, second] = works.map((work) => finish(work));
    expect(first).toBe(second);
    expect([state(3)?.state === first?.state, retained.stats().snapshots]).toEqual([true, 1]);
  });

  it("is dropped half a minute after its last use, five minutes after it was made, and no earlier", () => {
    const { clock, snapshots, retained, state } = withEvents(5);
    clock.advance(1_000_000);
    state(3);
    const kept = () => {
      snapshots.expire();
      return retained.stats().snapshots;
    };
    clock.advance(30_000);
    expect(kept()).toBe(1);
    for (let passed = 30_000; passed < 300_000; passed += 30_000) {
      const known = state(3);
      if (known !== undefined) snapshots.keep(3, known);
      clock.advance(30_000);
      expect(kept()).toBe(1);
    }
    state(3);
    clock.advance(1);
    expect(kept()).toBe(0);
    state(3);
    clock.advance(30_001);
    expect(kept()).toBe(0);
  });

  it("is used when it is kept again", () => {
    const { clock, snapshots, retained, state } = withEvents(5);
    const known = state(3);
    clock.advance(20_000);
    if (known !== undefined) snapshots.keep(3, known);
    clock.advance(20_000);
    snapshots.expire();
    expect(retained.stats().snapshots).toBe(1);
  });

  it("knows how many objects follow a page, of 64 pages with short names", () => {
    const { snapshots, state } = withEvents(5);
    snapshots.expectPage(3, { prefix: "" }, "a", 1);
    expect(snapshots.following(3, { prefix: "" }, "a")).toBeUndefined();
    state(3);
    for (let i = 0; i < 65; i++) snapshots.expectPage(3, { prefix: "" }, `a${i}`, i);
    expect([0, 1, 64].map((i) => snapshots.following(3, { prefix: "" }, `a${i}`))).toEqual([
      undefined,
      1,
      64,
    ]);
    // The name has more characters than the key.
    const name = (length: number) =>
      "k".repeat(length - JSON.stringify([{ prefix: "" }, ""]).length);
    for (const length of [1_024, 1_025])
      snapshots.expectPage(3, { prefix: "" }, name(length), length);
    expect(
      [1_024, 1_025].map((length) => snapshots.following(3, { prefix: "" }, name(length))),
    ).toEqual([1_024, undefined]);
    expect(snapshots.following(4, { prefix: "" }, "a1")).toBeUndefined();
  });

  it("is not kept if the state was replaced while it was made", () => {
    const { cache, snapshots, retained } = withEvents(5);
    for (let revision = 7; revision < 40; revision++) {
      cache.apply(new WatchBatch(revision, [event("ADDED", `k${revision}`, revision)]));
    }
    const work = snapshots.at(3);
    cache.replace([object("z", 50)], 50);
    snapshots.clear();
    finish(work);
    expect(retained.stats().snapshots).toBe(0);
    expect(finish(snapshots.at(50))?.state.get("z")?.modRevision).toBe(50);
    snapshots.clear();
    expect(retained.stats().snapshots).toBe(0);
  });
});
