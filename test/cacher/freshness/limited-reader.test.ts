import { describe, expect, it } from "vitest";
import { Turns } from "../../../src/base/turns.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { LimitedUpstreamReader } from "../../../src/cacher/freshness/upstream-reader.ts";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import type { Predicate, Selection } from "../../../src/cacher/request/selection.ts";
import { Shard } from "../../../src/cacher/request/shard.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type {
  HistoryRequest,
  ListRequest,
  ListResult,
  RevisionRequirement,
} from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";
import { object } from "../objects.ts";

/** A storage that answers with at most so many objects, regardless of the limit requested. */
async function storageOf(keys: readonly string[], perResponse: number): Promise<MemoryStorage> {
  const storage = new MemoryStorage({ clock: new FakeClock() });
  for (const key of keys) await storage.put({ key, value: Buffer.alloc(100) });
  const list = storage.list.bind(storage);
  storage.list = (request) => {
    expect(request).not.toHaveProperty("predicate");
    const limit = request.limit === 0 ? perResponse : Math.min(perResponse, request.limit);
    return list({ ...request, limit });
  };
  return storage;
}

it("Pages from the storage hold all matching objects, once and in order, within their bounds", async () => {
  const chosen = fc.uniqueArray(fc.integer({ min: 0, max: 99 }), { maxLength: 40 });
  const sizes = fc.record({
    limit: fc.integer({ min: 0, max: 5 }),
    maxBytes: fc.constantFrom(0, 1, 500),
    perResponse: fc.integer({ min: 1, max: 10 }),
  });
  await fc.assert(
    fc.asyncProperty(chosen, chosen, sizes, async (there, picked, sizes) => {
      const { limit, maxBytes, perResponse } = sizes;
      const keys = there.map((i) => `k${10 + i}`).sort();
      const clock = new FakeClock();
      const reads = new LimitedUpstreamReader({
        ...{ name: "things", storage: await storageOf(keys, perResponse) },
        ...{ limiter: new UpstreamLimiter(clock), scheduler: new Turns(clock) },
        check: (response) => response,
      });
      const predicate: Predicate = ({ key }) => picked.includes(Number(key.slice(1)) - 10);
      const seen: string[] = [];
      let page: ListResult | undefined;
      let at: RevisionRequirement = { match: "ANY" };
      do {
        const startAfter = page?.next;
        page = await reads.list({ prefix: "k", startAfter, limit, maxBytes, at, predicate });
        at = { match: "EXACT", revision: page.revision };
        expect(page.items.length).toBeLessThanOrEqual(limit === 0 ? Infinity : limit);
        const bytes = page.items.reduce((sum, item) => sum + estimatedBytes(item), 0);
        if (maxBytes > 0 && page.items.length > 1) expect(bytes).toBeLessThanOrEqual(maxBytes);
        expect(page.remaining).toBe(page.next === undefined ? 0 : undefined);
        seen.push(...page.items.map(({ key }) => key));
      } while (page.next !== undefined);
      expect(seen).toEqual(keys.filter((key) => picked.includes(Number(key.slice(1)) - 10)));
    }),
    { numRuns: 100 },
  );
});

it("A page from the storage is of one history, of which its last part may name none", async () => {
  const storage = await storageOf(["a", "b", "c"], 1);
  const list = storage.list.bind(storage);
  const clock = new FakeClock();
  const reads = new LimitedUpstreamReader({
    ...{
      name: "things",
      storage,
      limiter: new UpstreamLimiter(clock),
      scheduler: new Turns(clock),
    },
    check: (response) => response,
  });
  const page = (...ids: string[]): Promise<ListResult> => {
    storage.list = async (request) => ({ ...(await list(request)), historyId: ids.shift() });
    return reads.list({ prefix: "", limit: 0, at: any, predicate: () => true });
  };
  expect(await page("first", "", "")).toMatchObject({ historyId: "first" });
  await expect(page("first", "", "another")).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
});

const any: RevisionRequirement = { match: "ANY" };
const selectionOf = (name: string): Selection =>
  ({ canonical: name, cost: 1, predicate: () => true }) as unknown as Selection;

/** Reads from a storage with these keys. `requests`: what it is asked for, as text. */
async function readerOf(keys: readonly string[], perResponse: number) {
  const clock = new FakeClock();
  const storage = await storageOf(keys, perResponse);
  const requests: string[] = [];
  const list = storage.list.bind(storage);
  const get = storage.get.bind(storage);
  storage.list = (request) => {
    requests.push(`after ${request.startAfter}`);
    return list(request);
  };
  storage.get = (request) => {
    requests.push(`get ${request.key}`);
    return get(request);
  };
  const reads = new LimitedUpstreamReader({
    ...{ name: "things", storage, limiter: new UpstreamLimiter(clock) },
    ...{ scheduler: new Turns(clock), check: (response) => response },
  });
  return { reads, requests, storage };
}

const tenKeys = Array.from({ length: 10 }, (_, i) => `k${i}`);

describe("A page with a predicate", () => {
  it("has all matching objects of several responses if it has no bound", async () => {
    const { reads, requests } = await readerOf(tenKeys, 4);
    const predicate: Predicate = ({ key }) => key !== "k5";
    const page = await reads.list({ prefix: "k", limit: 0, at: any, predicate });
    expect([page.items.length, page.next, page.remaining]).toEqual([9, undefined, 0]);
    expect(requests).toEqual(["after undefined", "after k3", "after k7"]);
  });

  it.each([
    ["objects", 3, { limit: 3 }],
    // The object with which it exceeds the bound is the next page's.
    ["bytes", 2, { limit: 0, maxBytes: 350 }],
  ])(
    "ends at its bound of %s, without an evaluation of all that comes behind",
    async (_, size, bounds) => {
      const { reads, requests } = await readerOf(tenKeys, 5);
      let evaluated = 0;
      const predicate: Predicate = () => ++evaluated > 0;
      const page = await reads.list({ prefix: "k", at: any, predicate, ...bounds });
      expect([page.items.length, page.next, evaluated]).toEqual([size, `k${size - 1}`, 4]);
      expect(requests.length).toBe(1);
    },
  );

  it("ends at its bound of objects behind what an earlier response had", async () => {
    const { reads } = await readerOf(tenKeys, 4);
    let evaluated = 0;
    const predicate: Predicate = () => ++evaluated > 0;
    const page = await reads.list({ prefix: "k", limit: 6, at: any, predicate });
    expect([page.items.length, page.next, evaluated]).toEqual([6, "k5", 7]);
  });

  it("is short, and followed by another, after 50,000 objects", async () => {
    const { reads, storage } = await readerOf([], 1);
    const items = Array.from({ length: 25_000 }, () => object("k", 2));
    let responses = 0;
    storage.list = async () => ({ revision: 2, items, next: `k${++responses}`, remaining: 1 });
    const page = await reads.list({ prefix: "k", limit: 0, at: any, predicate: () => false });
    expect([page.items, page.next, page.remaining]).toEqual([[], "k2", undefined]);
    expect(responses).toBe(2);
  });

  it("may be of a selection instead", async () => {
    const { reads } = await readerOf(tenKeys, 10);
    const selection = {
      ...selectionOf("k3"),
      predicate: ({ key }: { key: string }) => key === "k3",
    };
    const page = await reads.list({
      ...{ prefix: "k", limit: 0, at: any },
      selection: selection as unknown as Selection,
    });
    expect(page.items.map(({ key }) => key)).toEqual(["k3"]);
  });
});

describe("A count from the storage", () => {
  it.each([
    [{}, 10],
    [{ prefix: "k1" }, 1],
    [{ predicate: ({ key }: { key: string }) => key > "k5" }, 4],
    [{ limit: 1, maxBytes: 1 }, 10],
  ])("of %j is %i, without objects", async (request, count) => {
    const { reads } = await readerOf(tenKeys, 4);
    const found = await reads.list({ prefix: "k", limit: 0, at: any, countOnly: true, ...request });
    expect(found).toMatchObject({ items: [], next: undefined, remaining: count });
  });

  it("continues at one revision after 50,000 objects", async () => {
    const { reads, storage } = await readerOf([], 1);
    const items = Array.from({ length: 25_000 }, () => object("k", 2));
    const asked: unknown[] = [];
    storage.list = async ({ at, startAfter }) => {
      asked.push([at.match, startAfter]);
      const next = asked.length < 5 ? `k${asked.length}` : undefined;
      return { revision: 2, items, next, remaining: undefined };
    };
    const found = await reads.list({ prefix: "k", limit: 0, at: any, countOnly: true });
    expect([found.remaining, found.revision]).toEqual([125_000, 2]);
    const following = ["k1", "k2", "k3", "k4"].map((key) => ["EXACT", key]);
    expect(asked).toEqual([["ANY", undefined], ...following]);
  });
});

it("A page of all keys asks the storage for no more than it has, and for no values", async () => {
  const { reads, storage } = await readerOf(tenKeys, 10);
  const asked: ListRequest[] = [];
  const list = storage.list.bind(storage);
  storage.list = (request) => {
    asked.push(request);
    return list(request);
  };
  const page = await reads.list({ prefix: "k", limit: 3, maxBytes: 900, at: any, view: "KEYS" });
  expect(asked).toMatchObject([{ limit: 3, maxBytes: 900, keysOnly: true }]);
  expect(page.items.map(({ key, valueBytes }) => `${key} ${valueBytes}`)).toEqual([
    "k0 0",
    "k1 0",
    "k2 0",
  ]);
  expect([page.next, page.remaining]).toEqual(["k2", 7]);
});

it("A list asks the storage for no values where none are shown or selected by", async () => {
  const { reads, storage } = await readerOf(tenKeys, 10);
  const asked: unknown[] = [];
  const list = storage.list.bind(storage);
  storage.list = (request) => {
    asked.push(request.keysOnly);
    return list(request);
  };
  const predicate: Predicate = () => true;
  const order = "KEY_DESCENDING";
  for (const request of [
    { order },
    { order, view: "KEYS" },
    { order, view: "KEYS", predicate },
    { order, view: "KEYS", selection: selectionOf("one") },
  ] as const)
    await reads.list({ prefix: "k", limit: 1, at: any, ...request });
  expect(asked).toEqual([false, true, false, false]);
});

describe("The history of a key", () => {
  const request = { key: "k1", upTo: undefined, limit: 10, maxBytes: 1_000 };

  it("is that of the storage, which is asked for it each time", async () => {
    const { reads, storage } = await readerOf(tenKeys, 10);
    const asked: HistoryRequest[] = [];
    const result = { revision: 11, events: [], next: undefined };
    Object.assign(storage, {
      history: async (asking: HistoryRequest) => {
        asked.push(asking);
        return result;
      },
    });
    const owner = {};
    const requests = [request, { ...request, upTo: 7, keysOnly: true }, { ...request, upTo: 7 }];
    for (const each of [...requests, ...requests])
      expect(await reads.history({ ...each, owner })).toBe(result);
    expect(asked).toMatchObject([...requests, ...requests].map((each) => ({ ...each, owner })));
  });

  it("is refused by a storage without histories", async () => {
    const { reads, storage } = await readerOf(tenKeys, 10);
    for (const history of [undefined, async () => undefined]) {
      Object.assign(storage, { history });
      await expect(reads.history(request)).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
    }
  });
});

describe("Equal reads share a request, which others do not:", () => {
  const list = { prefix: "k", limit: 0, at: any };
  const lists: readonly CacheListRequest[] = [
    list,
    { ...list, prefix: "k1" },
    { ...list, limit: 2 },
    { ...list, maxBytes: 200 },
    { ...list, startAfter: "k1" },
    { ...list, keysOnly: true },
    { ...list, view: "KEYS" },
    { ...list, countOnly: true },
    { ...list, shard: new Shard([{ first: 0n, last: 2n ** 63n }]) },
    { ...list, selection: selectionOf("one") },
    { ...list, selection: selectionOf("two") },
    { ...list, interval: { from: "k1", to: undefined } },
    { ...list, interval: { from: "k1", to: "k3" } },
  ];

  it("lists of the same page, from before it is requested", async () => {
    const { reads, requests } = await readerOf(tenKeys, 10);
    const since = -1;
    const all = [...lists, ...lists].map((request) => reads.list(request, since));
    await Promise.all(all);
    expect(requests.length).toBe(lists.length);
  });

  it("not those with a predicate, as two functions may differ", async () => {
    const { reads } = await readerOf(tenKeys, 10);
    const pages = ["k1", "k2"].map((wanted) =>
      reads.list({ ...list, predicate: ({ key }) => key === wanted }, -1),
    );
    const keys = (await Promise.all(pages)).map(({ items }) => items.map(({ key }) => key));
    expect(keys).toEqual([["k1"], ["k2"]]);
  });

  it("gets of the same key and revision", async () => {
    const { reads, requests } = await readerOf(tenKeys, 10);
    const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });
    const gets = ["k1", "k2", "k1"].map((key) => reads.get({ key, at: any }, -1));
    const found = (await Promise.all(gets)).map((result) => result.object?.key);
    expect([found, requests]).toEqual([
      ["k1", "k2", "k1"],
      ["get k1", "get k2"],
    ]);
    // One of a past revision never changes: also calls that come once it is requested share it.
    const past = [2, 11, 2].map((revision) => reads.get({ key: "k9", at: exact(revision) }));
    const [before, now] = await Promise.all(past);
    expect([before?.object, now?.object?.key]).toEqual([undefined, "k9"]);
    await Promise.all([reads.get({ key: "k0", at: any }), reads.get({ key: "k0", at: any })]);
    expect(requests.slice(2)).toEqual(["get k9", "get k9", "get k0", "get k0"]);
  });
});
