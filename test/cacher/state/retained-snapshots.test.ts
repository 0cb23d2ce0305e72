import { describe, expect, it } from "vitest";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import {
  markOf,
  type RetainedBounds,
  type RetainedSnapshot,
  RetainedSnapshots,
} from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { RevisionRequirement } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";
import { event, object } from "../objects.ts";

const value = "x".repeat(10_000);

/** A cache of ten objects of 10 kB, and snapshots of it. */
class World {
  readonly cache = new WatchCache(defaultEventWindowBounds, new FakeClock());
  readonly retained: RetainedSnapshots;
  readonly evicted: string[] = [];

  constructor(bounds: Partial<RetainedBounds> = {}) {
    const objects = Array.from({ length: 10 }, (_, i) => object(`k${i}`, i + 1, value));
    this.cache.replace(objects, 10);
    this.retained = new RetainedSnapshots(this.cache, { idleBytes: 1e9, bytes: 1e9, ...bounds });
  }

  retain(name: string, isIdle: boolean = false): RetainedSnapshot {
    const state: RetainedSnapshot = {
      mark: markOf(this.cache),
      isIdle,
      evict: () => {
        this.evicted.push(name);
        this.retained.delete(state);
      },
    };
    this.retained.add(state);
    return state;
  }

  overwrite(count: number): void {
    for (let i = 0; i < count; i++) {
      const revision = this.cache.revision + 1;
      const name = `k${revision % 10}`;
      this.cache.apply(new WatchBatch(revision, [event("MODIFIED", name, revision, value)]));
    }
  }
}

describe("The memory that snapshots keep alive", () => {
  it("is at most that of the changes since", () => {
    const world = new World();
    world.retain("a");
    expect(world.retained.stats()).toEqual({ snapshots: 1, bytes: 0 });
    world.overwrite(2);
    const { bytes } = world.retained.stats();
    // The objects before and after each change count, which bounds both kinds of change.
    expect(bytes).toBeGreaterThan(2 * 10_000);
    expect(bytes).toBeLessThan(2 * 25_000);
  });

  it("never exceeds the whole state, regardless of the number of writes", () => {
    const world = new World();
    world.retain("a");
    world.overwrite(1_000);
    const { bytes } = world.retained.stats();
    expect(bytes).toBeGreaterThanOrEqual(10 * 10_000);
    expect(bytes).toBeLessThan(10 * 11_000);
  });

  it("is counted once for snapshots that share it", () => {
    const world = new World();
    world.retain("a");
    world.retain("b");
    world.retain("c");
    world.overwrite(2);
    const together = world.retained.stats().bytes;
    const alone = new World();
    alone.retain("a");
    alone.overwrite(2);
    expect(together).toBe(alone.retained.stats().bytes);
  });

  it("is 0 once they are released", () => {
    const world = new World();
    const state = world.retain("a");
    world.overwrite(2);
    world.retained.delete(state);
    world.retained.delete(state);
    expect(world.retained.stats()).toEqual({ snapshots: 0, bytes: 0 });
  });

  it("is bounded: the oldest are evicted first, and no more than necessary", () => {
    const world = new World({ bytes: 120_000 });
    for (const name of ["a", "b", "c", "d"]) {
      world.retain(name);
      world.overwrite(2);
    }
    world.retained.enforceLimits();
    expect(world.evicted).toEqual(["a", "b"]);
    expect(world.retained.stats().bytes).toBeLessThanOrEqual(120_000);
  });

  it("has a lower bound for idle ones, which no stream is reading", () => {
    const world = new World({ idleBytes: 120_000, bytes: 240_000 });
    for (const [i, name] of ["a", "b", "c", "d"].entries()) {
      world.retain(name, i % 2 === 1);
      world.overwrite(2);
    }
    world.retained.enforceLimits();
    expect(world.evicted).toEqual(["b", "d"]);
  });
});

const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });

describe("Snapshots retained for future pages", () => {
  it("are evicted when they keep too much alive, and their pages are read from the store", async () => {
    const cached = await CachedStore.ready({ watchers: { retainedSnapshotBytes: 100_000 } });
    await cached.write(["a", value], ["b", value], ["c", value]);
    const revisions: number[] = [];
    for (let i = 0; i < 20; i++) {
      const { revision } = await cached.cacher.list({ prefix: "", limit: 1, at: { match: "ANY" } });
      revisions.push(revision);
      await cached.write(["a", value], ["b", value], ["c", value]);
    }
    expect(cached.cacher.stats().retainedSnapshots.snapshots).toBe(20);
    await cached.clock.elapse(1_000);
    const { snapshots, bytes } = cached.cacher.stats().retainedSnapshots;
    expect(snapshots).toBeLessThan(5);
    expect(bytes).toBeLessThanOrEqual(100_000);
    const at = exact(revisions[0] ?? 0);
    const rest = await cached.cacher.list({ prefix: "", startAfter: "a", limit: 0, at });
    expect(rest.items.map(({ key, modRevision }) => [key, modRevision])).toEqual([
      ["b", revisions[0]],
      ["c", revisions[0]],
    ]);
  });

  it("are dropped after five minutes, even if they are in use", async () => {
    const cached = await CachedStore.ready({
      consistencyIntervalMs: 0,
      eventWindow: { maxEvents: 2, minEvents: 1 },
    });
    const revision = await cached.write(["a", "1"], ["b", "1"]);
    const page = () => cached.cacher.list({ prefix: "", limit: 1, at: exact(revision) });
    await page();
    for (let i = 0; i < 5; i++) await cached.write(["c", String(i)]);
    await cached.store.compact(await cached.store.currentRevision());
    for (let seconds = 0; seconds < 300; seconds += 20) {
      expect((await page()).items).toHaveLength(1);
      await cached.clock.elapse(20_000);
    }
    await cached.clock.elapse(1_000);
    await expect(page()).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
  });
});

describe("A LATEST_STATE stream with a slow reader of its initial state", () => {
  const request = {
    scope: { prefix: "" },
    afterRevision: 0,
    withPrevious: false,
    delivery: "LATEST_STATE",
    sendInitialEvents: true,
  } as const;

  async function amidst(retainedSnapshotBytes: number) {
    const watchers = { retainedSnapshotBytes, batchBytes: 1_000, stallTimeoutMs: 600_000 };
    const cached = await CachedStore.ready({ consistencyIntervalMs: 0, watchers });
    const keys = ["a", "b", "c", "d", "e", "f"];
    await cached.write(...keys.map((key) => [key, value] as const));
    const stream = cached.cacher.watch(request);
    await cached.clock.settle();
    expect(read(stream)).toBe("…");
    expect(read(stream)).toContain("ADDED:a");
    for (const key of keys) await cached.write([key, value]);
    return { cached, stream };
  }

  it("is ended when its snapshot keeps more alive than the bound", async () => {
    const { cached, stream } = await amidst(50_000);
    expect(cached.cacher.stats().retainedSnapshots).toMatchObject({ snapshots: 1 });
    await cached.clock.elapse(1_000);
    expect(stream.ended).toMatchObject({
      reason: "SLOW_CONSUMER",
      message: expect.stringContaining("50000 bytes"),
    });
    expect(cached.cacher.stats().retainedSnapshots).toEqual({ snapshots: 0, bytes: 0 });
    expect(cached.cacher.stats().slowConsumers).toBe(1);
  });

  it("continues below the bound, and retains nothing after its initial state", async () => {
    const { cached, stream } = await amidst(200_000);
    await cached.clock.elapse(1_000);
    expect(readAll(stream).at(-1)).toMatch(/MODIFIED:f=x+@8 →8$/);
    expect(cached.cacher.stats().retainedSnapshots).toEqual({ snapshots: 0, bytes: 0 });
  });

  it("retains nothing when it is closed", async () => {
    const { cached, stream } = await amidst(200_000);
    stream.close();
    expect(cached.cacher.stats().retainedSnapshots).toEqual({ snapshots: 0, bytes: 0 });
  });

  it("retains nothing if it watches a single key", async () => {
    const { cached } = await amidst(50_000);
    const { clock, cacher } = cached;
    const { retainedSnapshots } = cacher.stats();
    const stream = cacher.watch({ ...request, scope: { key: "a" } });
    await clock.settle();
    expect(read(stream)).toBe("…");
    expect(cacher.stats().retainedSnapshots).toEqual(retainedSnapshots);
    for (let i = 0; i < 20; i++) await cached.write(["b", value]);
    await clock.elapse(1_000);
    expect(read(stream)).toContain("ADDED:a");
  });
});
