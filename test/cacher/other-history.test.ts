import { describe, expect, it } from "vitest";
import { historyChanged, revisionTooOld, upstreamUnavailable } from "../../src/base/errors.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { WatchRequest } from "../../src/storage/storage.ts";
import { FakeClock } from "../fake-clock.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

/** A ready cache with an object, and a live stream on it. */
async function watched() {
  const cached = await CachedStore.ready();
  const revision = await cached.write(["a", "1"]);
  const stream = cached.cacher.watch(everything);
  await cached.clock.settle();
  readAll(stream);
  return {
    cached,
    revision,
    stream,
    breakUpstream: (error: Error) => breakUpstream(cached, error),
  };
}

/** Breaks the upstream watch, and waits until the cache has opened another. */
async function breakUpstream({ clock, upstream }: CachedStore, error: Error): Promise<void> {
  upstream.at(-1)?.end(error);
  await clock.elapse(10_000);
}

describe("A watch from now, before the upstream watch has delivered anything", () => {
  it("does not begin at a revision of another history", async () => {
    const clock = new FakeClock();
    const store = new MemoryStorage({ clock });
    const watch = store.watch.bind(store);
    // As a store whose restores its watches may not show, and whose watch is slow.
    const storage = Object.assign(store, {
      writtenAfter: async () => ({ written: [], total: 1 }),
      watch: (request: WatchRequest) => {
        const stream = watch(request);
        const silence = { read: () => undefined, ended: undefined, onReadable: () => {} };
        return { ...silence, close: () => stream.close() };
      },
    });
    await store.put({ key: "a", value: Buffer.from("1") });
    const { cacher } = await CachedStore.ready({ storage }, clock);
    expect(cacher.ready).toBe(true);
    await store.renewHistory(await store.historyId());
    await store.put({ key: "a", value: Buffer.from("2") });
    const stream = cacher.watch(everything);
    await clock.settle();
    expect(readAll(stream)).toEqual([]);
    expect(stream.ended).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });
});

describe("A cache whose upstream watch breaks", () => {
  it("continues its streams if the history is the same", async () => {
    const { cached, stream, breakUpstream } = await watched();
    await breakUpstream(upstreamUnavailable("The store went away."));
    await cached.write(["a", "2"]);
    expect(readAll(stream)).toEqual(["MODIFIED:a=2@3 →3"]);
    expect(cached.cacher.stats()).toMatchObject({ reconnects: 1, relists: 0 });
  });

  it("detects a new history id that another replica has set", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const anew = await cached.store.renewHistory(await cached.store.historyId());
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: anew },
    });
    expect(cached.cacher.currentHistoryId).toBe(anew);
  });

  it("detects it within two seconds, even while its watch continues undisturbed", async () => {
    const { cached, stream } = await watched();
    const anew = await cached.store.renewHistory(await cached.store.historyId());
    await cached.clock.elapse(1_000);
    expect(stream.ended).toBeUndefined();
    await cached.clock.elapse(2_000);
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: anew },
    });
    expect(cached.cacher.currentHistoryId).toBe(anew);
  });

  it("repeats the check if it gets no response", async () => {
    const { cached, stream } = await watched();
    const historyId = cached.store.historyId.bind(cached.store);
    cached.store.historyId = () => Promise.reject(upstreamUnavailable("No response."));
    await cached.clock.elapse(30_000);
    expect(stream.ended).toBeUndefined();
    cached.store.historyId = historyId;
    await cached.store.renewHistory(await historyId());
    await cached.clock.elapse(10_000);
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("sets another history id when it detects another history itself", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const old = await cached.store.historyId();
    await breakUpstream(historyChanged(2, 1));
    const anew = await cached.store.historyId();
    expect(anew).not.toBe(old);
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: anew },
    });
    const wrong = cached.cacher.watch({ ...everything, historyId: old });
    const right = cached.cacher.watch({ ...everything, historyId: anew });
    await cached.clock.settle();
    expect(wrong.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
    expect(readAll(right)).toEqual(["→2"]);
  });

  it("detects another history by its lower revision, even if the store reports only compaction", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const currentRevision = cached.store.currentRevision.bind(cached.store);
    // The store was restored to revision 1, and has been compacted since.
    cached.store.currentRevision = async () => (await currentRevision()) - 1;
    await breakUpstream(revisionTooOld(2, 9));
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("loses history only, if the store reports only compaction", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const old = await cached.store.historyId();
    await breakUpstream(revisionTooOld(2, 9));
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_LOST",
      metadata: { current_revision: "2" },
    });
    expect(await cached.store.historyId()).toBe(old);
  });

  it("opens the watch again, after a pause, if the storage closes it without an error", async () => {
    const { cached, stream, breakUpstream } = await watched();
    let watches = 0;
    const watch = cached.store.watch.bind(cached.store);
    cached.store.watch = (request) => {
      watches++;
      const closed = watch(request);
      closed.close();
      return closed;
    };
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(watches).toBeGreaterThan(1);
    expect(watches).toBeLessThan(20);
    expect(stream.ended).toBeUndefined();
  });

  it("ignores an id that can't be read, and adopts one that it did not know", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const { cacher, store } = cached;
    const [known, other] = [await store.historyId(), "another"];
    store.historyId = () => Promise.resolve("");
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(stream.ended).toBeUndefined();
    expect(cacher.currentHistoryId).toBe(known);
    store.historyId = () => Promise.resolve(known);
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(stream.ended).toBeUndefined();
    store.historyId = () => Promise.resolve(other);
    store.renewHistory = () => Promise.resolve(other);
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("learns the id of its history if it did not know it at first", async () => {
    const cached = new CachedStore();
    const known = await cached.store.historyId();
    cached.store.historyId = () => Promise.resolve("");
    cached.cacher.start();
    await cached.clock.elapse(200);
    expect(cached.cacher.currentHistoryId).toBe("");
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    readAll(stream);
    cached.store.historyId = () => Promise.resolve(known);
    await breakUpstream(cached, upstreamUnavailable("The store went away."));
    expect(cached.cacher.currentHistoryId).toBe(known);
    expect(stream.ended).toBeUndefined();
  });
});
