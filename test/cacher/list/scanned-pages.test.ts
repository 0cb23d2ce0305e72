import { describe, expect, it } from "vitest";
import { Turns } from "../../../src/base/turns.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { LimitedUpstreamReader } from "../../../src/cacher/freshness/upstream-reader.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { PageReader } from "../../../src/cacher/list/page-reader.ts";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { HistoricalSnapshots } from "../../../src/cacher/state/historical-snapshots.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import type { ListResult, Storage } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { finish } from "../finish.ts";
import { object } from "../objects.ts";

const objects = Array.from({ length: 60_000 }, (_, i) => object(`k${100_000 + i}`, i + 1));
const revision = objects.length;

/** A list of all objects with a predicate that matches none of them. */
const nothing: CacheListRequest = {
  ...{ prefix: "", limit: 0, at: { match: "ANY" } },
  predicate: () => false,
};

describe("A page whose predicate matches no object", () => {
  const expected = { items: [], next: objects[49_999]?.key, remaining: undefined };

  it("examines 50,000 objects of the cache, and is empty", () => {
    const clock = new FakeClock();
    const cache = new WatchCache(defaultEventWindowBounds, clock);
    cache.replace(objects, revision);
    const retained = new RetainedSnapshots(cache, { idleBytes: 1e9, bytes: 1e9 });
    const lists = new ListCache(cache, new ChunkCache(), { bytes: 64 * 1024, scanned: 10_000 });
    const pages = new PageReader(cache, new HistoricalSnapshots(cache, clock, retained), lists);
    expect(finish(pages.list(nothing))).toMatchObject(expected);
  });

  it("examines 50,000 objects of the storage, in responses of at most 50,000 objects and 8 MiB", async () => {
    const clock = new FakeClock();
    const asked: (readonly [limit: number, maxBytes: number | undefined])[] = [];
    const storage: Pick<Storage, "get" | "list"> = {
      get: () => Promise.reject(new Error("Not expected.")),
      list: async ({ limit, maxBytes }): Promise<ListResult> => {
        asked.push([limit, maxBytes]);
        const items = objects.slice(0, limit);
        return { revision, items, next: items.at(-1)?.key, remaining: undefined };
      },
    };
    const limiter = new UpstreamLimiter(clock);
    const scheduler = new Turns(clock);
    const check = <T>(response: Promise<T>): Promise<T> => response;
    const reads = new LimitedUpstreamReader({ name: "things", storage, limiter, scheduler, check });
    const page = reads.list(nothing);
    await clock.settle();
    clock.runImmediates();
    await clock.settle();
    expect(await page).toMatchObject(expected);
    expect(asked).toEqual([[50_000, 8 * 1024 ** 2]]);
  });
});
