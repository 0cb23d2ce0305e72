import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const minute = 60_000;
const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

/** Makes the store answer lists of keys only with what `change` returns. */
function misreport(
  { store }: CachedStore,
  change: (keys: readonly string[]) => readonly string[],
): { restore: () => void } {
  const list = store.list.bind(store);
  store.list = async (request) => {
    const result = await list(request);
    if (request.keysOnly !== true) return result;
    const kept = change(result.items.map(({ key }) => key));
    return { ...result, items: result.items.filter(({ key }) => kept.includes(key)) };
  };
  return {
    restore: () => {
      store.list = list;
    },
  };
}

describe("The consistency check", () => {
  it("runs at its interval, jittered, and finds no difference in a correct cache", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 10 * minute });
    for (let i = 0; i < 2_500; i++) {
      await cached.store.put({ key: `k${i % 2_000}`, value: Buffer.from("") });
    }
    await cached.clock.elapse(9.9 * minute);
    expect(cached.cacher.stats().consistencyChecks).toBe(0);
    await cached.clock.elapse(0.1 * minute);
    expect(cached.cacher.stats()).toMatchObject({ consistencyChecks: 1, inconsistencies: 0 });
    await cached.clock.elapse(10 * minute);
    expect(cached.cacher.stats()).toMatchObject({ consistencyChecks: 2, inconsistencies: 0 });
  });

  it("compares one revision, despite writes meanwhile", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: minute });
    for (let i = 0; i < 1_500; i++)
      await cached.store.put({ key: `k${i}`, value: Buffer.from("") });
    await cached.clock.settle();
    const list = cached.store.list.bind(cached.store);
    cached.store.list = async (request) => {
      const result = await list(request);
      await cached.store.put({ key: "k1499", value: Buffer.from("changed") });
      await cached.store.put({ key: "new", value: Buffer.from("") });
      return result;
    };
    await cached.clock.elapse(2 * minute);
    expect(cached.cacher.stats().consistencyChecks).toBeGreaterThan(0);
    expect(cached.cacher.stats().inconsistencies).toBe(0);
  });

  it.each([
    ["a key that the store lacks", () => ["a"]],
    ["an empty store", () => []],
  ])(
    "that finds %s stops serving, ends streams with HISTORY_LOST and relists",
    async (_what, keys) => {
      const cached = await CachedStore.ready({ consistencyIntervalMs: minute });
      await cached.write(["a", "1"], ["b", "1"]);
      const stream = cached.cacher.watch(everything);
      await cached.clock.settle();
      readAll(stream);
      const changes: boolean[] = [];
      cached.cacher.onReadyChange((ready) => changes.push(ready));
      const { restore } = misreport(cached, keys);
      await cached.clock.elapse(minute);
      restore();
      expect(stream.ended).toBeInstanceOf(WatchFanoutError);
      expect(stream.ended).toMatchObject({
        reason: "HISTORY_LOST",
        metadata: { current_revision: "2" },
      });
      await cached.clock.elapse(10_000);
      expect(changes).toEqual([false, true]);
      expect(cached.cacher.stats()).toMatchObject({ ready: true, inconsistencies: 1, relists: 1 });
      const { items } = await cached.cacher.list({ prefix: "", limit: 0, at: { match: "ANY" } });
      expect(items.map(({ key }) => key)).toEqual(["a", "b"]);
    },
  );

  describe("that finds a difference while the watch is being resumed", () => {
    /** At the check, with the history id held until `answer`. */
    async function differing() {
      const cached = await CachedStore.ready({ consistencyIntervalMs: 10 * minute });
      await cached.write(["a", "1"]);
      const { restore } = misreport(cached, () => []);
      const historyId = cached.store.historyId.bind(cached.store);
      const held = Promise.withResolvers<void>();
      await cached.clock.elapse(9.9 * minute);
      const stream = cached.cacher.watch(everything);
      await cached.clock.settle();
      readAll(stream);
      cached.store.historyId = async () => {
        await held.promise;
        return historyId();
      };
      cached.upstream.at(-1)?.end(new WatchFanoutError("UPSTREAM_UNAVAILABLE", "Away."));
      await cached.clock.elapse(0.2 * minute);
      expect(cached.cacher.stats()).toMatchObject({ ready: true, consistencyChecks: 0 });
      const answer = async () => {
        restore();
        held.resolve();
        await cached.clock.elapse(0.2 * minute);
        readAll(stream);
      };
      return { cached, stream, historyId, answer };
    }

    it("relists once the history is confirmed", async () => {
      const { cached, stream, answer } = await differing();
      await answer();
      expect(cached.cacher.stats()).toMatchObject({ ready: true, inconsistencies: 1, relists: 1 });
      expect(stream.ended).toMatchObject({ reason: "HISTORY_LOST" });
    });

    it("leaves the end of streams to another history", async () => {
      const { cached, stream, historyId, answer } = await differing();
      // As a store that has been restored, and has grown past the revision of the cache again.
      await cached.store.renewHistory(await historyId());
      await answer();
      expect(cached.cacher.stats()).toMatchObject({ ready: true, inconsistencies: 0, relists: 1 });
      expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
    });
  });

  it("takes no difference for one of the cache whose watch has outlived the store's history", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 1_000 });
    await cached.write(["a", "1"]);
    Object.assign(cached.store, { watchOutlivesHistory: true });
    const { restore } = misreport(cached, () => []);
    const renewed = await cached.store.renewHistory(await cached.store.historyId());
    await cached.clock.elapse(790);
    expect(cached.cacher.stats()).toMatchObject({ consistencyChecks: 0, relists: 0 });
    await cached.clock.elapse(20);
    restore();
    await cached.clock.elapse(50);
    expect(cached.cacher.stats()).toMatchObject({ inconsistencies: 0, relists: 1 });
    expect(cached.cacher.currentHistoryId).toBe(renewed);
  });

  it("takes no difference from a server that names another history, which it may have found first", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 1_000 });
    await cached.write(["a", "1"]);
    const list = cached.store.list.bind(cached.store);
    let compared = 0;
    cached.store.list = async (request) => {
      compared++;
      return { ...(await list(request)), items: [], historyId: "another" };
    };
    await cached.clock.elapse(10_000);
    expect(compared).toBeGreaterThan(0);
    expect(cached.cacher.stats()).toMatchObject({ ready: true, inconsistencies: 0, relists: 0 });
  });

  it("that relists leaves no earlier coalesced backlog to later watches", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: 10_000 });
    const { restore } = misreport(cached, () => []);
    const latest = { ...everything, delivery: "LATEST_STATE" } as const;
    const before = cached.cacher.watch(latest);
    await cached.clock.settle();
    await cached.write(["a", "1"]);
    await cached.clock.elapse(9_700);
    expect(readAll(before)).toEqual(["→1", "ADDED:a=1@2 →2"]);
    await cached.clock.elapse(100);
    restore();
    await cached.clock.elapse(100);
    expect(cached.cacher.stats()).toMatchObject({ ready: true, inconsistencies: 1, relists: 1 });
    // Within a second of the coalescing, at the same position of a new event window.
    const after = cached.cacher.watch(latest);
    await cached.clock.settle();
    await cached.write(["b", "1"]);
    expect(readAll(after)).toEqual(["→2", "ADDED:b=1@3 →3"]);
  });

  it("proves nothing about the cache if the store can't serve", async () => {
    const cached = await CachedStore.ready({ consistencyIntervalMs: minute });
    await cached.write(["a", "1"]);
    const list = cached.store.list.bind(cached.store);
    cached.store.list = () => Promise.reject(new WatchFanoutError("UPSTREAM_UNAVAILABLE", "Away."));
    await cached.clock.elapse(2 * minute);
    expect(cached.cacher.stats()).toMatchObject({ ready: true, consistencyChecks: 0 });
    cached.store.list = list;
    await cached.clock.elapse(2 * minute);
    expect(cached.cacher.stats().consistencyChecks).toBeGreaterThan(0);
  });

  it("can be turned off, and ends with the Cacher", async () => {
    const off = await CachedStore.ready({ consistencyIntervalMs: 0 });
    await off.clock.elapse(60 * minute);
    expect(off.cacher.stats().consistencyChecks).toBe(0);
    const closed = await CachedStore.ready({ consistencyIntervalMs: minute });
    await closed.cacher.close();
    await closed.clock.elapse(10 * minute);
    expect(closed.clock.pendingTimers).toBe(0);
  });
});
