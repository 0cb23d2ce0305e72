import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { Turns } from "../../../src/base/turns.ts";
import { Freshness } from "../../../src/cacher/freshness/freshness.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { LimitedUpstreamReader } from "../../../src/cacher/freshness/upstream-reader.ts";
import { Reads } from "../../../src/cacher/reads.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Readiness } from "../../../src/cacher/state/readiness.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { RevisionRequirement } from "../../../src/storage/storage.ts";
import type { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { CachedStore, readAll, silent } from "../cached-store.ts";
import { object } from "../objects.ts";

const any: RevisionRequirement = { match: "ANY" };
const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });

/** A cache of so many objects, on a clock that advances as it is read. */
async function filled(count: number): Promise<CachedStore> {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
  await cached.write(...Array.from({ length: count }, (_, i) => [`k${10_000 + i}`, "x"] as const));
  return cached;
}

/** Counts the objects examined in each turn of the event loop. */
class Counter {
  readonly perTurn: number[] = [];
  #looked = 0;

  /** A predicate that is not shared with another request. */
  predicate(): Predicate {
    return () => {
      this.#looked++;
      return true;
    };
  }

  /** Lets turns pass until no work is left. */
  async run(clock: FakeClock): Promise<void> {
    await nextTurn();
    this.#endTurn();
    while (clock.pendingImmediates > 0) {
      clock.runTurn();
      this.#endTurn();
      await nextTurn();
    }
  }

  #endTurn(): void {
    this.perTurn.push(this.#looked);
    this.#looked = 0;
  }
}

/** Maximum number of objects examined in one turn, on a clock that advances by a millisecond per reading. */
const mostPerTurn = (turnMs + 1) * 4_096;

describe("Scans run in time slices", () => {
  it("for any number of concurrent pages of one client, and others do not wait for them", async () => {
    const cached = await filled(5_000);
    const counter = new Counter();
    const greedy = {};
    const order: string[] = [];
    const page = async (name: string, owner: object): Promise<void> => {
      const request = { prefix: "", limit: 0, at: any, owner };
      const { items } = await cached.cacher.list({ ...request, predicate: counter.predicate() });
      expect(items).toHaveLength(5_000);
      order.push(name);
    };
    const pages = Array.from({ length: 40 }, (_, i) => page(`greedy-${i}`, greedy));
    pages.push(page("modest", {}));
    await counter.run(cached.clock);
    await Promise.all(pages);
    const looked = counter.perTurn.reduce((sum, each) => sum + each);
    expect(looked).toBeGreaterThanOrEqual(41 * 5_000);
    expect(Math.max(...counter.perTurn)).toBeLessThan(mostPerTurn);
    expect(order.indexOf("modest")).toBeLessThan(5);
  });

  it("for initial states, whose readers are notified when their chunk is ready", async () => {
    const cached = await filled(5_000);
    const counter = new Counter();
    const owner = {};
    const streams = Array.from({ length: 40 }, () => {
      const stream = cached.cacher.watch({
        ...{ scope: { prefix: "" }, withPrevious: true, predicate: counter.predicate() },
        ...{ afterRevision: 0, sendInitialEvents: true, owner },
      });
      const batches: string[] = [];
      stream.onReadable(() => batches.push(...readAll(stream)));
      return batches;
    });
    await counter.run(cached.clock);
    expect(streams.map((batches) => batches.at(-1))).toEqual(
      streams.map(() => expect.stringMatching(/complete →2$/)),
    );
    expect(Math.max(...counter.perTurn)).toBeLessThan(mostPerTurn);
  });

  it("for reads that only the store can serve", async () => {
    const cached = await filled(5_000);
    const { store } = cached;
    const counter = new Counter();
    const uncached = new LimitedUpstreamReader({
      ...{ name: "things", storage: store, limiter: new UpstreamLimiter(cached.clock) },
      ...{ scheduler: new Turns(cached.clock), check: (response) => response },
    });
    const pages = Array.from({ length: 20 }, () =>
      uncached.list({ prefix: "", limit: 10, at: any, predicate: counter.predicate(), owner: {} }),
    );
    await counter.run(cached.clock);
    const [first] = await Promise.all(pages);
    expect(first).toMatchObject({ next: "k10009", items: { length: 10 }, remaining: undefined });
    expect(Math.max(...counter.perTurn)).toBeLessThan(mostPerTurn);
  });

  it("and stop when the call is cancelled", async () => {
    const cached = await filled(5_000);
    const counter = new Counter();
    const abort = new AbortController();
    const request = { prefix: "", limit: 0, at: any, signal: abort.signal };
    const page = cached.cacher.list({ ...request, predicate: counter.predicate() });
    const failed = expect(page).rejects.toThrow("gone");
    await nextTurn();
    abort.abort(new Error("gone"));
    await counter.run(cached.clock);
    await failed;
    expect(counter.perTurn.reduce((sum, each) => sum + each)).toBeLessThan(mostPerTurn);
  });

  it("and are repeated if the cache is replaced meanwhile", async () => {
    const clock = new BusyClock();
    const cache = new WatchCache(defaultEventWindowBounds, clock);
    const objects = Array.from({ length: 5_000 }, (_, i) => object(`k${10_000 + i}`, i + 1));
    cache.replace(objects, 5_000, "one");
    const scheduler = new Turns(clock);
    const readiness = new Readiness("things");
    const storage = new MemoryStorage({ clock });
    const context = {
      ...{ name: "things", storage, source: storage, cache, readiness },
      ...{ clock, logger: silent, scheduler, random: Math.random, stages: {} },
    };
    const confirm = () => Promise.reject(new Error("Not expected."));
    const history = { confirmHistory: confirm, confirmWatched: confirm, historyGeneration: 1 };
    const freshness = new Freshness(context, new UpstreamLimiter(clock), history);
    const bounds = { initialChunkBytes: 1_000_000, retainedSnapshotBytes: 1_000_000 };
    const reads = new Reads(context, freshness, bounds);
    const request = { prefix: "", limit: 4_000, at: any, predicate: () => true };
    const page = reads.list(request, { isLate: false, epoch: cache.epoch, since: clock.now() });
    await nextTurn();
    expect(scheduler.size).toBe(1);
    cache.replace([object("new", 3)], 3, "other");
    await new Counter().run(clock);
    expect(await page).toMatchObject({ revision: 3, items: [{ key: "new" }] });
    // No snapshot of the replaced state is retained.
    expect(reads.stats().retainedSnapshots.snapshots).toBe(0);
  });
});

describe("An older revision", () => {
  /** A cache with so many changes of other objects after the first write of `a`. */
  async function changed(times: number): Promise<{ cached: CachedStore; first: number }> {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
    const first = await cached.write(["a", "1"]);
    const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
    for (let i = 0; i < times; i += keys.length) {
      await cached.write(...keys.map((key) => [key, `${i}`] as const));
    }
    await cached.write(["a", "2"]);
    return { cached, first };
  }

  it("is looked up for a single object without a rebuilt state", async () => {
    const { cached, first } = await changed(5_000);
    const snapshots = countSnapshots(cached);
    const gets = Array.from({ length: 50 }, (_, i) =>
      cached.cacher.get({ key: "a", at: exact(first + i), owner: cached }),
    );
    const none = cached.cacher.get({ key: "k1", at: exact(first) });
    await cached.clock.settle();
    for (const { object } of await Promise.all(gets)) expect(object?.modRevision).toBe(first);
    expect((await none).object).toBeUndefined();
    expect(snapshots()).toBe(0);
  });

  it("is rebuilt in time slices, once for all concurrent requests for it", async () => {
    const { cached, first } = await changed(5_000);
    const snapshots = countSnapshots(cached);
    const lists = Array.from({ length: 5 }, () =>
      cached.cacher.list({ prefix: "", limit: 0, at: exact(first), owner: {} }),
    );
    let isDone = false;
    const all = Promise.all(lists).then((results) => {
      isDone = true;
      return results;
    });
    await nextTurn();
    let turns = 0;
    while (cached.clock.pendingImmediates > 0) {
      cached.clock.runTurn();
      await nextTurn();
      if (!isDone) turns++;
    }
    for (const { items } of await all) expect(items.map(({ key }) => key)).toEqual(["a"]);
    // Of 5,000 events, 128 are undone in a step, and a turn is of no more than five of these.
    expect(turns).toBeGreaterThan(5_000 / 128 / 5 - 1);
    expect(snapshots()).toBe(1);
  });
});

/** Number of historical snapshots that the cache has made since. */
function countSnapshots({ cacher }: CachedStore): () => number {
  const before = cacher.stats().retainedSnapshots.snapshots;
  return () => cacher.stats().retainedSnapshots.snapshots - before;
}
