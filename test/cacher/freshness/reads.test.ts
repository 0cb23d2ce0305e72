import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { RevisionRequirement } from "../../../src/storage/storage.ts";
import { CachedStore } from "../cached-store.ts";

/** The outcome of a call so far: its value, its reason, or that it is pending. */
async function outcome<T>(call: Promise<T>, clock: CachedStore["clock"]): Promise<T | string> {
  let result: T | string = "pending";
  call.then(
    (value) => {
      result = value;
    },
    (error: unknown) => {
      result = error instanceof WatchFanoutError ? error.reason : String(error);
    },
  );
  await clock.settle();
  return result;
}

/** Makes the store report a revision that the cache does not receive, and returns it. */
async function promiseNewer({ store }: CachedStore): Promise<number> {
  const promised = (await store.currentRevision()) + 1;
  store.currentRevision = () => Promise.resolve(promised);
  return promised;
}

const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });
const notOlder = (revision: number): RevisionRequirement => ({
  match: "NOT_OLDER_THAN",
  revision,
});

describe("Reads through the Cacher", () => {
  it("are NOT_READY until the cache is synced, while writes are passed through", async () => {
    const { cacher } = new CachedStore();
    await expect(cacher.get({ key: "a", at: { match: "ANY" } })).rejects.toMatchObject({
      reason: "NOT_READY",
    });
    const written = await cacher.put({ key: "a", value: Buffer.from("1") });
    expect(written.revision).toBe(2);
  });

  it("see every write that completed before, by default", async () => {
    const cached = await CachedStore.ready();
    const { cacher, clock } = cached;
    const { revision } = await cacher.put({ key: "a", value: Buffer.from("1") });
    // The cache has not received the write yet: the event loop had no turn since.
    expect(cacher.stats().revision).toBeLessThan(revision);
    const read = cacher.get({ key: "a", at: { match: "LINEARIZABLE" } });
    expect(await outcome(read, clock)).toMatchObject({ revision, object: { key: "a" } });
  });

  it("see the cached state if they accept any state", async () => {
    const cached = await CachedStore.ready();
    await cached.cacher.put({ key: "a", value: Buffer.from("1") });
    const { cacher } = cached;
    const { currentHistoryId: historyId } = cacher;
    const read = await cacher.get({ key: "a", at: { match: "ANY" } });
    expect(read).toEqual({ revision: 1, historyId, object: undefined });
  });

  it("are served by the storage if the cache does not reach the revision within 3 s", async () => {
    const cached = await CachedStore.ready();
    const { cacher, clock, store } = cached;
    await promiseNewer(cached);
    const stored = { revision: 7, object: undefined };
    store.get = () => Promise.resolve(stored);
    const read = cacher.get({ key: "a", at: { match: "LINEARIZABLE" } });
    await clock.elapse(2_999);
    expect(await outcome(Promise.race([read, "pending"]), clock)).toBe("pending");
    await clock.elapse(1);
    const { currentHistoryId: historyId } = cacher;
    expect(historyId).not.toBe("");
    expect(await outcome(read, clock)).toEqual({ revision: 7, historyId, object: undefined });
  });

  it.each([
    ["at the current revision", exact(3), { revision: 3, next: undefined, values: ["2"] }],
    ["before the last change", exact(2), { revision: 2, next: undefined, values: ["1"] }],
    ["not older than the last change", notOlder(3), { revision: 3, values: ["2"] }],
    ["not older than an earlier change", notOlder(1), { revision: 3, values: ["2"] }],
  ])("answer for a state %s", async (_what, at, expected) => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    await cached.write(["a", "2"]);
    const { items, ...rest } = await cached.cacher.list({ prefix: "", limit: 0, at });
    const values = items.map(({ value }) => Buffer.from(value).toString());
    expect({ ...rest, values }).toMatchObject(expected);
  });

  it.each([
    ["at", exact(9)],
    ["not older than", notOlder(9)],
  ])("%s a revision above the store's own are HISTORY_CHANGED", async (_what, at) => {
    const { cacher, clock } = await CachedStore.ready();
    expect(await outcome(cacher.get({ key: "a", at }), clock)).toBe("HISTORY_CHANGED");
  });

  it.each([
    ["at", exact],
    ["not older than", notOlder],
  ])(
    "%s a revision that only the store has wait 3 s for the cache, then fail with REVISION_TOO_NEW",
    async (_what, at) => {
      const cached = await CachedStore.ready();
      const { cacher, clock } = cached;
      const timersBefore = clock.pendingTimers;
      const read = cacher.get({ key: "a", at: at(await promiseNewer(cached)) });
      await clock.elapse(2_999);
      expect(await outcome(Promise.race([read, "pending"]), clock)).toBe("pending");
      await clock.elapse(1);
      expect(await outcome(read, clock)).toBe("REVISION_TOO_NEW");
      expect(clock.pendingTimers).toBe(timersBefore);
    },
  );

  it("end at once when their caller cancels", async () => {
    const cached = await CachedStore.ready();
    const { cacher, clock } = cached;
    await promiseNewer(cached);
    const abort = new AbortController();
    const read = cacher.get({ key: "a", at: { match: "LINEARIZABLE" }, signal: abort.signal });
    expect(await outcome(read, clock)).toBe("pending");
    abort.abort(new Error("no longer needed"));
    expect(await outcome(read, clock)).toBe("Error: no longer needed");
    expect(cacher.stats().waitingRequests).toBe(0);
  });

  it("page through one revision, despite writes meanwhile", async () => {
    const cached = await CachedStore.ready();
    const entries = ["a", "b", "c", "d", "e"].map((key) => [key, "1"] as const);
    const revision = await cached.write(...entries);
    const pages: string[] = [];
    let startAfter: string | undefined;
    let at: RevisionRequirement = { match: "LINEARIZABLE" };
    do {
      const listing = cached.cacher.list({ prefix: "", startAfter, limit: 2, at });
      await cached.clock.settle();
      const page = await listing;
      pages.push(`${page.items.map(({ key }) => key).join("")} ${page.remaining}`);
      expect(page.revision).toBe(revision);
      startAfter = page.next;
      at = exact(page.revision);
      await cached.write(["c", null], ["f", "1"]);
      await cached.write(["c", "2"], ["f", null]);
    } while (startAfter !== undefined);
    expect(pages).toEqual(["ab 3", "cd 1", "e 0"]);
  });

  it("that the storage began, since the cache was not new enough, are continued by the storage", async () => {
    const cached = await CachedStore.ready();
    const { cacher, clock, store } = cached;
    await cached.write(["a", "1"], ["b", "1"]);
    const promised = await promiseNewer(cached);
    const list = store.list.bind(store);
    store.list = async (request) => {
      const known = { ...request, at: { match: "ANY" } } as const;
      return { ...(await list(known)), revision: promised };
    };
    const first = cacher.list({ prefix: "", limit: 1, at: { match: "LINEARIZABLE" } });
    await clock.elapse(3_000);
    const { next, revision } = await first;
    const second = cacher.list({ prefix: "", startAfter: next, limit: 1, at: exact(revision) });
    expect(await outcome(second, clock)).toMatchObject({
      revision: promised,
      items: [{ key: "b" }],
    });
  });

  it("request the store's revision once for many concurrent reads", async () => {
    const { cacher, clock, store } = await CachedStore.ready();
    let requests = 0;
    const { currentRevision } = store;
    store.currentRevision = (signal) => {
      requests++;
      return currentRevision.call(store, signal);
    };
    const reads = Array.from({ length: 100 }, () =>
      cacher.get({ key: "a", at: { match: "LINEARIZABLE" } }),
    );
    await clock.settle();
    await Promise.all(reads);
    expect(requests).toBeLessThanOrEqual(2);
  });
});
