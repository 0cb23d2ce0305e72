import { describe, expect, test } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import type { GetRequest, ListRequest } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, readAll, silent } from "../cached-store.ts";
import { object } from "../objects.ts";

/**
 * A cache at revision 2 with the objects a and b, over a store that is known to be at 3 and has the object c then. The
 * cache learns of that only in `catchUp`.
 */
class Behind {
  readonly cached: CachedStore;
  readonly gets: GetRequest[] = [];
  readonly lists: ListRequest[] = [];

  private constructor(cached: CachedStore) {
    this.cached = cached;
  }

  static async open(): Promise<Behind> {
    const clock = new FakeClock();
    const attributes = new AttributeReader(new JsonCodec({ fields: ["n"] }), clock, silent);
    const cached = await CachedStore.ready({ attributes }, clock);
    await cached.write(["a", '{"n":1}'], ["b", '{"n":2}']);
    const behind = new Behind(cached);
    const { store } = cached;
    const [get, list] = [store.get.bind(store), store.list.bind(store)];
    store.get = (request) => {
      behind.gets.push(request);
      return get(request);
    };
    store.list = (request) => {
      behind.lists.push(request);
      return list(request);
    };
    store.currentRevision = () => Promise.resolve(3);
    return behind;
  }

  /** A watch with the state of the store, which the cache does not get within 3 s. */
  async watch(request: Partial<CacheWatchRequest>): Promise<CacheWatcher> {
    const stream = this.opening(request);
    await this.cached.clock.elapse(3_000);
    return stream;
  }

  opening(request: Partial<CacheWatchRequest>): CacheWatcher {
    return this.cached.cacher.watch({
      ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: false },
      ...{ sendInitialEvents: true, ...request },
    });
  }

  /** The store is at 3, and the cache, too. */
  async catchUp(): Promise<void> {
    await this.cached.write(["c", '{"n":3}']);
  }
}

function reasonOf({ ended }: CacheWatcher): string | undefined {
  return ended instanceof WatchFanoutError ? ended.reason : undefined;
}

describe("A watch whose cache does not become new enough begins with the store's state", () => {
  test("of a prefix, then has the events that the cache gets", async () => {
    const behind = await Behind.open();
    const stream = await behind.watch({});
    expect(readAll(stream)).toEqual(["…", 'ADDED:a={"n":1}@2 ADDED:b={"n":2}@2 complete →2']);
    expect(behind.lists).toMatchObject([{ prefix: "", at: { match: "LINEARIZABLE" }, limit: 500 }]);
    await behind.catchUp();
    expect(readAll(stream)).toEqual(['ADDED:c={"n":3}@3 →3']);
    expect(stream.state).toBe("live");
  });

  test("of a selector, which the store's pages are read for", async () => {
    const behind = await Behind.open();
    const { cacher } = behind.cached;
    const stream = await behind.watch({ selection: cacher.select("", "n=2") });
    expect(readAll(stream)).toEqual(["…", 'ADDED:b={"n":2}@2 complete →2']);
    const predicate = ({ key }: { key: string }): boolean => key === "a";
    const picked = await behind.watch({ predicate, withPrevious: true });
    expect(readAll(picked)).toEqual(["…", 'ADDED:a={"n":1}@2 complete →2']);
  });

  test("page by page, all of one revision", async () => {
    const behind = await Behind.open();
    const { store, clock } = behind.cached;
    const pages = [["a"], ["b"], []];
    store.list = (request) => {
      behind.lists.push(request);
      const items = (pages.shift() ?? []).map((key) => object(key, 2));
      const next = items[0]?.key;
      return Promise.resolve({ revision: 2, items, next, remaining: undefined });
    };
    const stream = await behind.watch({});
    const batches: string[] = [];
    for (let i = 0; i < 4; i++) {
      batches.push(...readAll(stream));
      await clock.settle();
    }
    expect(batches).toEqual(["…", "ADDED:a=@2 …", "ADDED:b=@2 …", "complete →2"]);
    const exact = { match: "EXACT", revision: 2 };
    expect(behind.lists.slice(-2)).toMatchObject([
      { startAfter: "a", at: exact },
      { startAfter: "b", at: exact },
    ]);
  });

  test("until a page can't be read: then it ends with the reason", async () => {
    const behind = await Behind.open();
    const { store, clock } = behind.cached;
    let reads = 0;
    store.list = () => {
      if (reads++ > 0) return Promise.reject(new WatchFanoutError("REVISION_TOO_OLD", "gone"));
      const items = [object("a", 2)];
      return Promise.resolve({ revision: 2, items, next: "a", remaining: undefined });
    };
    const stream = await behind.watch({});
    expect(readAll(stream)).toEqual(["…", "ADDED:a=@2 …"]);
    await clock.settle();
    expect([readAll(stream), reasonOf(stream)]).toEqual([[], "REVISION_TOO_OLD"]);
  });

  test.each<[string, Partial<CacheWatchRequest>, string]>([
    ["of one key", { scope: { key: "a" } }, 'ADDED:a={"n":1}@2 complete →2'],
    ["of a key that is not there", { scope: { key: "x" } }, "complete →2"],
    [
      "of a key that does not match",
      { scope: { key: "a" }, predicate: () => false, withPrevious: true },
      "complete →2",
    ],
  ])("%s, with one read", async (_, request, state) => {
    const behind = await Behind.open();
    const stream = await behind.watch(request);
    expect(readAll(stream)).toEqual(["…", state]);
    expect(behind.lists).toEqual([]);
    const { scope } = request as { scope: { key: string } };
    expect(behind.gets).toMatchObject([{ ...scope, at: { match: "LINEARIZABLE" } }]);
    await behind.catchUp();
    expect([readAll(stream), stream.state]).toEqual([[], "live"]);
  });

  test("unless it ends meanwhile: then the read is aborted, or not begun", async () => {
    const behind = await Behind.open();
    const { store, clock } = behind.cached;
    store.list = (request) => {
      behind.lists.push(request);
      return new Promise(() => {});
    };
    const stream = await behind.watch({});
    const waiting = behind.opening({});
    await clock.settle();
    expect(behind.lists.map(({ signal }) => signal?.aborted)).toEqual([false]);
    stream.close();
    waiting.close();
    await clock.elapse(3_000);
    expect(behind.lists.map(({ signal }) => signal?.aborted)).toEqual([true]);
    expect([readAll(stream), readAll(waiting)]).toEqual([[], []]);
  });
});

describe("A watch is refused", () => {
  const open = async (request: Partial<CacheWatchRequest>): Promise<CacheWatcher> => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({
      ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: false },
      ...request,
    });
    await cached.clock.settle();
    return stream;
  };
  const interval = { from: "a", to: "b" };

  test.each<[string, Partial<CacheWatchRequest>]>([
    ["with an initial state with raw keys", { rawKeys: true, sendInitialEvents: true }],
  ])("%s", async (_, request) => {
    expect(reasonOf(await open(request))).toBe("INVALID_REQUEST");
  });

  test.each<[string, Partial<CacheWatchRequest>]>([
    ["an interval", { scope: interval }],
    ["raw keys", { rawKeys: true, sendInitialEvents: false }],
    ["an empty history id, which is any", { historyId: "" }],
  ])("for none of: %s", async (_, request) => {
    const stream = await open(request);
    expect([readAll(stream), reasonOf(stream)]).toEqual([["→1"], undefined]);
  });

  test("with the id of another history", async () => {
    expect(reasonOf(await open({ historyId: "another" }))).toBe("HISTORY_CHANGED");
  });
});

test("A watch that resumes above the cache begins when the cache has reached its revision", async () => {
  const behind = await Behind.open();
  const { clock } = behind.cached;
  const resume = { sendInitialEvents: false, afterRevision: 3 };
  const [stream, closed] = [behind.opening(resume), behind.opening(resume)];
  await clock.settle();
  expect([readAll(stream), stream.state]).toEqual([["→3"], "starting"]);
  closed.close();
  await behind.catchUp();
  expect([readAll(stream), stream.state, readAll(closed)]).toEqual([[], "live", []]);
  await behind.cached.write(["d", "{}"]);
  expect(readAll(stream)).toEqual(["ADDED:d={}@4 →4"]);
});
