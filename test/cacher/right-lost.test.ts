import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { isRightLost } from "../../src/client/remote/relayed-calls.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const any = { match: "ANY" } as const;
const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

function denied(denial: string): WatchFanoutError {
  return new WatchFanoutError("UPSTREAM_DENIED", "The upstream refuses the relay.", {
    metadata: { denial },
  });
}

/** A cache whose store refuses everything from now on. */
async function refused(denial: string) {
  const cached = await CachedStore.ready({ mayNotServeAfter: isRightLost });
  await cached.write(["a", "1"]);
  const watch = cached.cacher.watch(everything);
  await cached.clock.settle();
  readAll(watch);
  const { currentRevision, historyId } = cached.store;
  // What a list and a resumed watch begin with.
  cached.store.currentRevision = () => Promise.reject(denied(denial));
  cached.store.historyId = () => Promise.reject(denied(denial));
  for (const stream of cached.upstream) stream.end(denied(denial));
  await cached.clock.elapse(1_000);
  const grant = (): void => {
    cached.store.currentRevision = currentRevision.bind(cached.store);
    cached.store.historyId = historyId.bind(cached.store);
  };
  return { cached, watch, grant };
}

describe("A cache whose right to the storage is lost", () => {
  it("ends its watches and serves nothing, until it is listed again", async () => {
    const { cached, watch, grant } = await refused("PERMISSION_DENIED");
    expect(watch.ended).toMatchObject({ reason: "UPSTREAM_DENIED" });
    await expect(cached.cacher.get({ key: "a", at: any })).rejects.toMatchObject({
      reason: "NOT_READY",
    });
    expect([cached.cacher.ready, cached.cacher.revision]).toEqual([false, 0]);
    grant();
    await cached.write(["b", "2"]);
    await cached.clock.elapse(60_000);
    const { object } = await cached.cacher.get({ key: "b", at: any });
    expect(object?.modRevision).toBe(cached.cacher.revision);
  });

  it("is served on if only the credential is not valid now, and says how old it may be", async () => {
    const { cached, watch } = await refused("UNAUTHENTICATED");
    expect(watch.ended).toBeUndefined();
    expect((await cached.cacher.get({ key: "a", at: any })).object?.key).toBe("a");
    expect(cached.cacher.staleForMs).toBeGreaterThanOrEqual(1_000);
  });
});

describe("The age of a cache", () => {
  it("is known only while the storage can't be reached", async () => {
    const cached = await CachedStore.ready();
    await cached.clock.elapse(5_000);
    expect(cached.cacher.staleForMs).toBeUndefined();
  });

  it("is that of the storage while only that can't reach its own source", async () => {
    const cached = await CachedStore.ready();
    Object.assign(cached.store, { staleForMs: 700 });
    expect(cached.cacher.staleForMs).toBe(700);
  });
});
