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
    past.expectPage(1, "p".repeat(1_024), "a", 7);
    expect(past.following(1, "p".repeat(1_024), "a")).toBeUndefined();
    for (let i = 0; i < 65; i++) past.expectPage(1, "", `k${i}`, i);
    expect(past.following(1, "", "k0")).toBeUndefined();
    for (let i = 1; i < 65; i++) expect(past.following(1, "", `k${i}`)).toBe(i);
  });
});
