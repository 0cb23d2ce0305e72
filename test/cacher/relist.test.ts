import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import type { CacheWatchRequest } from "../../src/cacher/request/request.ts";
import type { CacheWatcher } from "../../src/cacher/watch/cache-watcher.ts";
import type { WatchStream } from "../../src/storage/storage.ts";
import { CachedStore, read, readAll } from "./cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;
const latest = { ...everything, delivery: "LATEST_STATE" } as const;

type Entry = readonly [key: string, value: string | null];

function reasonOf(stream: WatchStream): string | null | undefined {
  const { ended } = stream;
  return ended instanceof WatchFanoutError ? ended.reason : (ended as null | undefined);
}

/**
 * Writes transactions, and compacts them before the cache's upstream watch reads them. Returns before the cache
 * detects it.
 */
async function writeUnseen(cached: CachedStore, ...writes: readonly Entry[][]): Promise<number> {
  let revision = 0;
  for (const entries of writes) {
    revision = await cached.store.txn(
      entries.map(([key, value]) =>
        value === null
          ? { type: "delete" as const, key }
          : { type: "put" as const, key, value: Buffer.from(value) },
      ),
    );
  }
  await cached.store.compact(revision);
  return revision;
}

/** The same, and waits until the cache has relisted. Returns its revision. */
async function relist(cached: CachedStore, ...writes: readonly Entry[][]): Promise<number> {
  const { relists } = cached.cacher.stats();
  const revision = await writeUnseen(cached, ...writes);
  await cached.clock.elapse(10_000);
  expect(cached.cacher.stats()).toMatchObject({ relists: relists + 1, revision });
  return revision;
}

/** A watch whose first response has been read. */
async function watching(
  cached: CachedStore,
  request: Partial<CacheWatchRequest> = {},
): Promise<CacheWatcher> {
  const stream = cached.cacher.watch({ ...latest, ...request });
  await cached.clock.settle();
  readAll(stream);
  return stream;
}

/** A ready cache with a, b and c at revision 2. */
async function ready(options: Parameters<typeof CachedStore.ready>[0] = {}): Promise<CachedStore> {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0, ...options });
  await cached.write(["a", "1"], ["b", "1"], ["c", "1"]);
  return cached;
}

/** The transactions that the cache misses, and the expected relist from revision 2. */
const unseen: Entry[][] = [
  [["b", "2"]],
  [["d", "1"]],
  [["d", null]],
  [
    ["c", null],
    ["e", "1"],
  ],
  [["a", "2"]],
];
const difference = "MODIFIED:b=2@3 ADDED:e=1@6 MODIFIED:a=2@7 DELETED:c=1@7 →7";

describe("A relist, for a LATEST_STATE watch", () => {
  it("that is live is one atomic batch: changes by mod_revision, then deletions at R, with the resume point R", async () => {
    const cached = await ready();
    const stream = await watching(cached);
    await relist(cached, ...unseen);
    expect(readAll(stream)).toEqual([difference]);
    await cached.write(["f", "1"]);
    expect(readAll(stream)).toEqual(["ADDED:f=1@8 →8"]);
    expect(stream.state).toBe("live");
  });

  it("notifies a waiting reader, and delivers the same batch to all", async () => {
    const cached = await ready();
    const streams = [await watching(cached), await watching(cached), await watching(cached)];
    let notified = 0;
    for (const stream of streams) stream.onReadable(() => notified++);
    await relist(cached, ...unseen);
    expect(notified).toBe(3);
    expect(new Set(streams.map((stream) => stream.read())).size).toBe(1);
  });

  it("ends a concurrent one of EVERY_EVENT that is still taking its initial state", async () => {
    const cached = await ready();
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    expect(stream.state).toBe("initial");
    await relist(cached, ...unseen);
    readAll(stream);
    expect(reasonOf(stream)).toBe("HISTORY_LOST");
  });

  it("ends a concurrent one of EVERY_EVENT, which has received all earlier events", async () => {
    const cached = await ready();
    const stream = await watching(cached, { delivery: "EVERY_EVENT" });
    await cached.store.put({ key: "f", value: Buffer.from("1") });
    await cached.clock.settle();
    await relist(cached, ...unseen);
    expect(readAll(stream)).toEqual(["ADDED:f=1@3 →3"]);
    expect(reasonOf(stream)).toBe("HISTORY_LOST");
  });

  it("delivers a re-creation as MODIFIED, with another create_revision, and the previous object", async () => {
    const cached = await ready();
    const stream = await watching(cached, { scope: { key: "a" }, withPrevious: true });
    await relist(cached, [["a", null]], [["a", "2"]]);
    const [event] = stream.read()?.events ?? [];
    expect(event).toMatchObject({
      type: "MODIFIED",
      object: { createRevision: 4, modRevision: 4, version: 1 },
      previous: { createRevision: 2, modRevision: 2, version: 1 },
    });
  });

  it("applies its filter: objects that begin, continue or cease to match", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 0 });
    await cached.write(["a", "yes"], ["b", "no"], ["c", "yes"], ["d", "yes"], ["e", "no"]);
    const stream = await watching(cached, {
      withPrevious: true,
      predicate: ({ value }) => Buffer.from(value).toString().startsWith("yes"),
    });
    await relist(
      cached,
      [["a", "yes!"]],
      [["b", "yes"]],
      [["c", "no"]],
      [
        ["d", null],
        ["e", null],
      ],
    );
    expect(readAll(stream)).toEqual([
      "MODIFIED:a=yes!(yes)@3 ADDED:b=yes(no)@4 DELETED:c=yes(yes)@5 DELETED:d=yes(yes)@6 →6",
    ]);
  });

  it("moves its resume point to R even if nothing has changed for it", async () => {
    const cached = await ready();
    const stream = await watching(cached, { scope: { key: "x" } });
    await relist(cached, ...unseen);
    expect(readAll(stream)).toEqual(["→7"]);
  });

  it("makes resume points below R too old, and accepts R", async () => {
    const cached = await ready();
    const revision = await relist(cached, ...unseen);
    const streams = [revision - 1, revision].map((afterRevision) =>
      cached.cacher.watch({ ...latest, afterRevision }),
    );
    await cached.clock.settle();
    expect(streams.map(reasonOf)).toEqual(["REVISION_TOO_OLD", undefined]);
  });

  it("that is stalled is merged with what it had missed before", async () => {
    const cached = await ready({ watchers: { maxBufferBatches: 1 } });
    const stream = await watching(cached);
    await cached.write(["f", "1"]);
    await cached.write(["b", "1!"]);
    await cached.write(["g", "1"]);
    await cached.write(["g", null]);
    await relist(cached, [["b", "2"]], [["f", null]]);
    await cached.write(["h", "1"]);
    expect(readAll(stream)).toEqual([
      "ADDED:f=1@3 →3",
      "MODIFIED:b=2@7 DELETED:f=1@8 ADDED:h=1@9 →9",
    ]);
  });

  it("that has fallen out of the event window is merged as well", async () => {
    const cached = await ready({
      watchers: { maxBufferBatches: 1 },
      eventWindow: { maxEvents: 2 },
    });
    const stream = await watching(cached);
    for (let i = 0; i < 9; i++) await cached.write(["f", `${i}`]);
    await cached.clock.elapse(1_000);
    await relist(cached, [["f", null]], [["g", "1"]]);
    for (let i = 0; i < 9; i++) await cached.write(["h", `${i}`]);
    await cached.clock.elapse(1_000);
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 1, objects: 3 });
    expect(readAll(stream)).toEqual([
      "ADDED:f=0@3 →3",
      "ADDED:g=1@13 DELETED:f=8@13 ADDED:h=8@22 →22",
    ]);
  });

  it("in the middle of an atomic batch follows that batch", async () => {
    const cached = await ready({ watchers: { maxBufferBatches: 1, batchBytes: 100 } });
    const stream = await watching(cached);
    await cached.write(["z", "1"]);
    for (const key of ["f", "g", "h"]) await cached.write([key, "1"]);
    const began = [read(stream), read(stream)];
    await relist(cached, [["f", "2"]], [["g", null]]);
    expect([...began, ...readAll(stream)]).toEqual([
      "ADDED:z=1@3 →3",
      "ADDED:f=1@4 ADDED:g=1@5 …",
      "ADDED:h=1@6 →6",
      "MODIFIED:f=2@7 DELETED:g=1@8 →8",
    ]);
  });

  it("in the middle of its initial state follows that state, which keeps its revision", async () => {
    const cached = await ready({ watchers: { batchBytes: 100 } });
    const stream = cached.cacher.watch({ ...latest, sendInitialEvents: true });
    await cached.clock.settle();
    const began = [read(stream), read(stream)];
    await relist(cached, ...unseen);
    expect([...began, ...readAll(stream)]).toEqual([
      "…",
      "ADDED:a=1@2 ADDED:b=1@2 …",
      "ADDED:c=1@2 complete →2",
      "MODIFIED:b=2@3 ADDED:e=1@6 …",
      "MODIFIED:a=2@7 DELETED:c=1@7 →7",
    ]);
  });

  it("while it resumes is part of its coalesced backlog", async () => {
    const cached = await ready();
    await cached.write(["a", "1!"]);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 2 });
    await cached.clock.settle();
    expect(read(stream)).toBe("→2");
    await relist(cached, [["b", "2"]], [["a", null]]);
    expect(readAll(stream)).toEqual(["MODIFIED:b=2@4 DELETED:a=1!@5 →5"]);
  });

  it("that happens more than once is delivered as one difference", async () => {
    const cached = await ready();
    const stream = await watching(cached);
    await relist(cached, [["b", "2"]], [["d", "1"]]);
    await relist(cached, [["d", "2"]], [["b", null]]);
    expect(readAll(stream)).toEqual(["ADDED:d=2@5 DELETED:b=2@6 →6"]);
  });

  it("just when it begins from now lets it begin where the event window does", async () => {
    const cached = await ready();
    const asked = Promise.withResolvers<number>();
    const currentRevision = cached.store.currentRevision.bind(cached.store);
    cached.store.currentRevision = () => asked.promise;
    const stream = cached.cacher.watch(latest);
    cached.store.currentRevision = currentRevision;
    const revision = await relist(cached, ...unseen);
    asked.resolve(2);
    await cached.clock.settle();
    expect(readAll(stream)).toEqual([`→${revision}`]);
  });

  it("beyond the revision that it waits for, which the cache never had, is REVISION_TOO_OLD", async () => {
    const cached = await ready();
    // The cache is at 2, and does not receive 3.
    await cached.store.txn([{ type: "put", key: "f", value: Buffer.from("1") }]);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 3 });
    await writeUnseen(cached, [["f", null]]);
    await cached.clock.elapse(10_000);
    expect(readAll(stream)).toEqual(["→3"]);
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD");
  });

  it.each<readonly [what: string, Partial<CacheWatchRequest>]>([
    ["LATEST_STATE", {}],
    ["EVERY_EVENT", everything],
  ])(
    "that conflicts with the cached state is of another history: it ends one of %s",
    async (_what, request) => {
      const cached = await ready();
      const old = await cached.store.historyId();
      const list = cached.store.list.bind(cached.store);
      // The list omits an object, as if it had been deleted.
      cached.store.list = async (asked) => {
        const page = await list(asked);
        return { ...page, items: page.items.filter(({ key }) => key !== "a") };
      };
      await relist(cached, [["b", "2"]], [["d", "1"]]);
      expect(await cached.store.historyId()).toBe(old);
      const stream = await watching(cached, request);
      cached.store.list = list;
      // The next list contains it again, unchanged.
      await relist(cached, [["b", "3"]], [["d", "2"]]);
      const anew = await cached.store.historyId();
      expect(anew).not.toBe(old);
      expect(stream.ended).toMatchObject({
        reason: "HISTORY_CHANGED",
        metadata: { history_id: anew },
      });
      expect(readAll(await watching(cached))).toEqual([]);
    },
  );

  it("to another history ends it", async () => {
    const cached = await ready();
    const stream = await watching(cached);
    await cached.store.renewHistory(await cached.store.historyId());
    await relist(cached, ...unseen);
    expect(readAll(stream)).toEqual([]);
    expect(reasonOf(stream)).toBe("HISTORY_CHANGED");
  });
});
