import { describe, expect, it } from "vitest";
import { historyChanged, revisionTooOld, upstreamUnavailable } from "../../src/errors.ts";
import { MemoryWatch } from "../../src/storage/memory/memory-watch.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

/** A cache whose upstream watch can be broken, and with a stream that is live on it. */
async function watched() {
  const cached = new CachedStore();
  const upstream: MemoryWatch[] = [];
  const watch = cached.store.watch.bind(cached.store);
  cached.store.watch = (request) => {
    const stream = watch(request);
    if (stream instanceof MemoryWatch) upstream.push(stream);
    return stream;
  };
  cached.cacher.start();
  await cached.clock.elapse(200);
  const revision = await cached.write(["a", "1"]);
  const stream = cached.cacher.watch(everything);
  await cached.clock.settle();
  readAll(stream);
  return {
    ...{ cached, revision, stream },
    breakUpstream: async (error: Error) => {
      upstream.at(-1)?.end(error);
      await cached.clock.elapse(10_000);
    },
  };
}

describe("A cache whose upstream watch breaks", () => {
  it("goes on with its streams while the history is the same", async () => {
    const { cached, stream, breakUpstream } = await watched();
    await breakUpstream(upstreamUnavailable("The store went away."));
    await cached.write(["a", "2"]);
    expect(readAll(stream)).toEqual(["MODIFIED:a=2@3 →3"]);
    expect(cached.cacher.stats()).toMatchObject({ reconnects: 1, relists: 0 });
  });

  it("learns that another replica has found the history to be another", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const anew = await cached.store.renewHistory(await cached.store.historyId());
    await breakUpstream(upstreamUnavailable("The store went away."));
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: anew },
    });
    expect(cached.cacher.currentHistoryId).toBe(anew);
  });

  it("gives the history another id when it finds that by itself", async () => {
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

  it("knows another history by its lower revision, also where only compaction was told", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const currentRevision = cached.store.currentRevision.bind(cached.store);
    // The store was restored from when it was at revision 1, and compacted since.
    cached.store.currentRevision = async () => (await currentRevision()) - 1;
    await breakUpstream(revisionTooOld(2, 9));
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("has lost history, and no more, where only compaction was told", async () => {
    const { cached, stream, breakUpstream } = await watched();
    const old = await cached.store.historyId();
    await breakUpstream(revisionTooOld(2, 9));
    expect(stream.ended).toMatchObject({
      reason: "HISTORY_LOST",
      metadata: { current_revision: "2" },
    });
    expect(await cached.store.historyId()).toBe(old);
  });

  it("tries again where a storage closes its watch without a word, and not in a hurry", async () => {
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
});
