import { describe, expect, it } from "vitest";
import { objectNotFound, otherHistory, upstreamUnavailable } from "../../../src/base/errors.ts";
import type { WriteResult } from "../../../src/storage/storage.ts";
import { CachedStore, readAll } from "../cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;
const value = Buffer.from("new");

/** A ready cache at revision 3 with the object `a`, and a stream that is live on it. */
async function watched() {
  const cached = await CachedStore.ready();
  await cached.write(["a", "1"]);
  await cached.write(["a", "2"]);
  const stream = cached.cacher.watch(everything);
  await cached.clock.settle();
  readAll(stream);
  return { cached, stream, first: await cached.store.historyId() };
}

/** Has the store answer the next writes as if it had been put back to an older state. */
function putBack({ store }: CachedStore, answer: Partial<WriteResult>): void {
  const put = store.put.bind(store);
  store.put = async (request) => ({ ...(await put(request)), ...answer });
}

/** The store can't be listed any more. */
function unlisted({ store }: CachedStore): void {
  store.list = () => Promise.reject(upstreamUnavailable("The store is away."));
}

describe("A write through a Cacher", () => {
  it("names the cache's history, and nothing is asked for that while the watch goes on", async () => {
    const { cached, first } = await watched();
    cached.store.get = () => Promise.reject(new Error("The store was asked."));
    const { historyId } = await cached.cacher.put({ key: "b", value });
    expect(historyId).toBe(first);
  });

  const proofs: readonly (readonly [string, Partial<WriteResult>])[] = [
    ["a revision that the cache had come to", { revision: 3 }],
    ["a lower revision", { revision: 1 }],
    ["the id of another history", { historyId: "another" }],
  ];

  it.each(proofs)(
    "with %s has the store listed at once, and its streams end",
    async (_what, answer) => {
      const { cached, stream, first } = await watched();
      putBack(cached, answer);
      const written = cached.cacher.put({ key: "b", value });
      // No time passes: nothing pauses before.
      await cached.clock.settle();
      const renewed = await cached.store.historyId();
      expect(renewed).not.toBe(first);
      expect((await written).historyId).toBe(renewed);
      expect(cached.cacher.currentHistoryId).toBe(renewed);
      expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
    },
  );

  it("names no history where the cache can't take it in within three seconds, and is no error", async () => {
    const { cached } = await watched();
    unlisted(cached);
    putBack(cached, { revision: 2 });
    const written = cached.cacher.put({ key: "b", value });
    await cached.clock.elapse(3_000);
    expect(await written).toMatchObject({ revision: 2, historyId: "", object: { key: "b" } });
  });

  it("is not waited for where its caller is gone", async () => {
    const { cached } = await watched();
    unlisted(cached);
    putBack(cached, { revision: 2 });
    const gone = new AbortController();
    const written = cached.cacher.put({ key: "b", value, signal: gone.signal });
    await cached.clock.settle();
    gone.abort();
    expect(await written).toMatchObject({ historyId: "" });
  });

  it("makes the cache one that only reads of any state are answered from, until it is filled anew", async () => {
    const { cached } = await watched();
    const { cacher, store, clock } = cached;
    const list = store.list;
    unlisted(cached);
    putBack(cached, { revision: 2 });
    const written = cacher.put({ key: "b", value });
    await clock.settle();
    const refused = { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringMatching(/history/) };
    for (const match of ["NOT_OLDER_THAN", "EXACT"] as const) {
      const at = { match, revision: 2 };
      await expect(cacher.get({ key: "a", at })).rejects.toMatchObject(refused);
      await expect(cacher.list({ prefix: "", limit: 0, at })).rejects.toMatchObject(refused);
    }
    const stream = cacher.watch({ ...everything, afterRevision: 2 });
    await clock.settle();
    expect(stream.ended).toMatchObject(refused);
    const any = await cacher.get({ key: "a", at: { match: "ANY" } });
    expect(any).toMatchObject({ revision: 3 });
    store.list = list;
    await clock.elapse(10_000);
    await written;
    const at = { match: "NOT_OLDER_THAN", revision: 2 } as const;
    expect(await cacher.list({ prefix: "", limit: 0, at })).toMatchObject({
      items: [{ key: "a" }, { key: "b" }],
    });
  });

  it("is answered once, however many prove the same at the same time", async () => {
    const { cached } = await watched();
    putBack(cached, { revision: 1 });
    const keys = ["b", "c", "d", "e"];
    const written = keys.map((key) => cached.cacher.put({ key, value }));
    await cached.clock.settle();
    const now = await cached.store.historyId();
    expect((await Promise.all(written)).map(({ historyId }) => historyId)).toEqual(
      keys.map(() => now),
    );
    expect(cached.cacher.stats()).toMatchObject({ relists: 1 });
  });
});

describe("A write that is refused", () => {
  it.each([
    ["an object that is absent at a lower revision", objectNotFound("b", 2)],
    ["the id of another history", otherHistory("first", "another")],
  ])("with %s says what it says, and has the store listed at once", async (_what, refusal) => {
    const { cached, stream } = await watched();
    cached.store.delete = () => Promise.reject(refusal);
    const deleted = cached.cacher.delete({ key: "b" }).catch((error: unknown) => error);
    await cached.clock.settle();
    expect(await deleted).toBe(refusal);
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("with an object that is absent where the cache is proves nothing", async () => {
    const { cached, stream } = await watched();
    const deleted = cached.cacher.delete({ key: "b" });
    await expect(deleted).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    expect(stream.ended).toBeUndefined();
  });
});

describe("A write while nothing comes from the store", () => {
  async function cutOff() {
    const watching = await watched();
    const { store, upstream } = watching.cached;
    const watch = store.watch.bind(store);
    store.watch = (request) => {
      const stream = watch(request);
      upstream.at(-1)?.end(upstreamUnavailable("The store is away."));
      return stream;
    };
    upstream.at(-1)?.end(upstreamUnavailable("The store went away."));
    await watching.cached.clock.settle();
    return watching;
  }

  it("names the cache's history where the store still has that", async () => {
    const { cached, first } = await cutOff();
    expect(await cached.cacher.put({ key: "b", value })).toMatchObject({ historyId: first });
  });

  it("names no history where the store does not say in time", async () => {
    const { cached } = await cutOff();
    cached.store.get = () => new Promise(() => {});
    const written = cached.cacher.put({ key: "b", value });
    await cached.clock.elapse(3_000);
    expect(await written).toMatchObject({ revision: 4, historyId: "" });
  });

  it("shares the question with others, and asks no more than one that is to come", async () => {
    const { cached } = await cutOff();
    let asked = 0;
    cached.store.get = () => {
      asked++;
      return new Promise(() => {});
    };
    for (const key of ["b", "c", "d", "e"]) {
      cached.cacher.put({ key, value }).catch(() => {});
      await cached.clock.settle();
    }
    expect(asked).toBe(1);
  });
});
