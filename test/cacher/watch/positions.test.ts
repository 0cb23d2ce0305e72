import { describe, expect, it } from "vitest";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

/** A live watch that has read everything. */
async function live(cached: CachedStore, key: string): Promise<CacheWatcher> {
  const stream = cached.cacher.watch({ ...everything, scope: { key } });
  await cached.clock.settle();
  readAll(stream);
  expect(stream.state).toBe("live");
  return stream;
}

describe("A watch with an initial state", () => {
  it("continues after the state, also if its events are in the event window", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    await cached.write(["b", "1"]);
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["…", "ADDED:a=1@2 ADDED:b=1@3 complete →3"]);
    await cached.write(["c", "1"]);
    expect(readAll(stream)).toEqual(["ADDED:c=1@4 →4"]);
  });

  it("begins with a state that has every write from before it, also one that the cache has not received", async () => {
    const cached = await CachedStore.ready();
    const revision = await cached.store.txn([{ type: "put", key: "a", value: Buffer.from("1") }]);
    expect(cached.cacher.revision).toBeLessThan(revision);
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.elapse(1_000);
    expect(readAll(stream)).toEqual(["…", "ADDED:a=1@2 complete →2"]);
  });
});

describe("The synced revision of a watch", () => {
  it("is not known while an event waits to be read", async () => {
    const cached = await CachedStore.ready();
    const stream = await live(cached, "a");
    const other = await cached.write(["b", "1"]);
    expect(stream.syncedRevision).toBe(other);
    const revision = await cached.write(["a", "1"]);
    expect(stream.syncedRevision).toBeUndefined();
    expect(read(stream)).toBe(`ADDED:a=1@${revision} →${revision}`);
    expect(stream.syncedRevision).toBe(revision);
  });
});

describe("A requested bookmark", () => {
  it("that the buffer has no room for comes when the buffer has been read", async () => {
    const watchers = { minBufferBatches: 1, maxBufferBatches: 1 };
    const cached = await CachedStore.ready({ watchers });
    const stream = await live(cached, "a");
    await cached.write(["a", "1"]);
    const revision = await cached.write(["b", "1"]);
    cached.cacher.requestProgress();
    await cached.clock.elapse(200);
    expect(readAll(stream)).toEqual(["ADDED:a=1@2 →2", `→${revision}`]);
  });
});

describe("The reader of a watch", () => {
  it("that waits is notified when the watch is closed", async () => {
    const cached = await CachedStore.ready();
    const stream = await live(cached, "a");
    let notified = 0;
    stream.onReadable(() => notified++);
    stream.close();
    expect([notified, stream.ended]).toEqual([1, null]);
  });
});
