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

/** A ready cache at revision 3 with the object `a`, and a live stream on it. */
async function watched() {
  const cached = await CachedStore.ready();
  await cached.write(["a", "1"]);
  await cached.write(["a", "2"]);
  const stream = cached.cacher.watch(everything);
  await cached.clock.settle();
  readAll(stream);
  return { cached, stream, first: await cached.store.historyId() };
}

/** Makes the store respond to the next writes as if it had been restored to an older state. */
function putBack({ store }: CachedStore, response: Partial<WriteResult>): void {
  const put = store.put.bind(store);
  store.put = async (request) => ({ ...(await put(request)), ...response });
}

/** Makes lists of the store fail. */
function unlisted({ store }: CachedStore): void {
  store.list = () => Promise.reject(upstreamUnavailable("The store is away."));
}

describe("A write through a Cacher", () => {
  it("returns the cached history's id, without a request to the store while the watch continues", async () => {
    const { cached, first } = await watched();
    cached.store.get = () => Promise.reject(new Error("Not expected."));
    const { historyId } = await cached.cacher.put({ key: "b", value });
    expect(historyId).toBe(first);
  });

  const proofs: readonly (readonly [string, Partial<WriteResult>])[] = [
    ["a revision that the cache had reached", { revision: 3 }],
    ["a lower revision", { revision: 1 }],
    ["the id of another history", { historyId: "another" }],
  ];

  it.each(proofs)(
    "with %s causes an immediate relist, and ends the streams",
    async (_what, response) => {
      const { cached, stream, first } = await watched();
      putBack(cached, response);
      const written = cached.cacher.put({ key: "b", value });
      // The clock does not advance: the relist does not wait.
      await cached.clock.settle();
      const renewed = await cached.store.historyId();
      expect(renewed).not.toBe(first);
      expect((await written).historyId).toBe(renewed);
      expect(cached.cacher.currentHistoryId).toBe(renewed);
      expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
    },
  );

  it("returns no history id if the cache can't list the new history within 3 s, and does not fail", async () => {
    const { cached } = await watched();
    unlisted(cached);
    putBack(cached, { revision: 2 });
    const written = cached.cacher.put({ key: "b", value });
    await cached.clock.elapse(3_000);
    expect(await written).toMatchObject({ revision: 2, historyId: "", object: { key: "b" } });
  });

  it("does not wait once its caller has cancelled", async () => {
    const { cached } = await watched();
    unlisted(cached);
    putBack(cached, { revision: 2 });
    const abort = new AbortController();
    const written = cached.cacher.put({ key: "b", value, signal: abort.signal });
    await cached.clock.settle();
    abort.abort();
    expect(await written).toMatchObject({ historyId: "" });
  });

  it("restricts the cache to reads of any state until it has relisted", async () => {
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

  it("causes one relist, even if many writes prove the same concurrently", async () => {
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

describe("A refused write", () => {
  it.each([
    ["an object absent at a lower revision", objectNotFound("b", 2)],
    ["the id of another history", otherHistory("first", "another")],
  ])("with %s keeps its error, and causes an immediate relist", async (_what, refusal) => {
    const { cached, stream } = await watched();
    cached.store.delete = () => Promise.reject(refusal);
    const deleted = cached.cacher.delete({ key: "b" }).catch((error: unknown) => error);
    await cached.clock.settle();
    expect(await deleted).toBe(refusal);
    expect(stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("with an object absent at the cache's revision proves nothing", async () => {
    const { cached, stream } = await watched();
    const deleted = cached.cacher.delete({ key: "b" });
    await expect(deleted).rejects.toMatchObject({ reason: "OBJECT_NOT_FOUND" });
    expect(stream.ended).toBeUndefined();
  });
});

describe("A write while the upstream watch is broken", () => {
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

  it("returns the cached history's id if the store still has that history", async () => {
    const { cached, first } = await cutOff();
    expect(await cached.cacher.put({ key: "b", value })).toMatchObject({ historyId: first });
  });

  it("returns no history id if the store does not respond in time", async () => {
    const { cached } = await cutOff();
    cached.store.get = () => new Promise(() => {});
    const written = cached.cacher.put({ key: "b", value });
    await cached.clock.elapse(3_000);
    expect(await written).toMatchObject({ revision: 4, historyId: "" });
  });

  it("shares one history check with later writes", async () => {
    const { cached } = await cutOff();
    let checks = 0;
    cached.store.get = () => {
      checks++;
      return new Promise(() => {});
    };
    for (const key of ["b", "c", "d", "e"]) {
      cached.cacher.put({ key, value }).catch(() => {});
      await cached.clock.settle();
    }
    expect(checks).toBe(1);
  });
});
