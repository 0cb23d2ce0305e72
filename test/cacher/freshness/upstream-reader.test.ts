import { describe, expect, it } from "vitest";
import { historyChanged, upstreamUnavailable } from "../../../src/base/errors.ts";
import type { CacherOptions } from "../../../src/cacher/options.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { CachedStore, readAll } from "../cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;
const unavailable = { reason: "UPSTREAM_UNAVAILABLE", message: expect.stringMatching(/history/) };

/**
 * A ready cache, at revision 3 if there are two values of "a", whose upstream watch has broken and can't be opened again.
 */
async function cutOff(options?: Partial<CacherOptions>, values = ["1", "2"]) {
  const cached = await CachedStore.ready(options);
  for (const value of values) await cached.write(["a", value]);
  const { store, upstream, clock } = cached;
  const watch = store.watch.bind(store);
  store.watch = (request): WatchStream => {
    const stream = watch(request);
    upstream.at(-1)?.end(upstreamUnavailable("The store is away."));
    return stream;
  };
  upstream.at(-1)?.end(upstreamUnavailable("The store went away."));
  await clock.settle();
  return cached;
}

/** The outcome of the promise; advances the clock for as long as it takes. */
async function outcome<T>(cached: CachedStore, result: Promise<T>): Promise<unknown> {
  const settled = result.catch((error: unknown) => error);
  await cached.clock.elapse(4_000);
  return settled;
}

describe("While the upstream watch is broken", () => {
  const listing = { prefix: "", limit: 0 } as const;

  it("reads that need the store's revision continue while its history is the same", async () => {
    const cached = await cutOff();
    const { cacher } = cached;
    const got = await outcome(cached, cacher.get({ key: "a", at: { match: "LINEARIZABLE" } }));
    expect(got).toMatchObject({ revision: 3 });
    const page = await outcome(cached, cacher.list({ ...listing, at: { match: "LINEARIZABLE" } }));
    expect(page).toMatchObject({ revision: 3, items: [{ key: "a" }] });
  });

  const restores: readonly (readonly [string, (store: CachedStore["store"]) => void])[] = [
    [
      "is at a lower revision",
      (store) => {
        store.currentRevision = async () => 2;
      },
    ],
    [
      "has exceeded the cache's revision, without the last known change",
      (store) => {
        const get = store.get.bind(store);
        store.currentRevision = async () => 9;
        store.get = async (request) =>
          request.at.match === "EXACT"
            ? { revision: request.at.revision, object: undefined }
            : get(request);
      },
    ],
    [
      "was given another id by an operator",
      (store) => {
        store.historyId = async () => "another";
      },
    ],
  ];

  describe.each(restores)("and the store %s", (_name, restore) => {
    it("a linearizable read is not served from the old history", async () => {
      const cached = await cutOff();
      restore(cached.store);
      const { cacher } = cached;
      const at = { match: "LINEARIZABLE" } as const;
      expect(await outcome(cached, cacher.get({ key: "a", at }))).toMatchObject(unavailable);
      expect(await outcome(cached, cacher.list({ ...listing, at }))).toMatchObject(unavailable);
    });

    it("no watch begins that would continue from one history into another", async () => {
      const cached = await cutOff();
      restore(cached.store);
      for (const sendInitialEvents of [false, true]) {
        const stream = cached.cacher.watch({ ...everything, sendInitialEvents });
        await cached.clock.elapse(4_000);
        readAll(stream);
        expect(stream.ended).toMatchObject(unavailable);
      }
    });

    it("reads of revisions that the cache holds are served", async () => {
      const cached = await cutOff();
      restore(cached.store);
      const { cacher } = cached;
      expect(await cacher.get({ key: "a", at: { match: "ANY" } })).toMatchObject({ revision: 3 });
      const exact = { match: "NOT_OLDER_THAN", revision: 3 } as const;
      expect(await cacher.list({ ...listing, at: exact })).toMatchObject({ revision: 3 });
    });
  });

  it("a page after an object that a restored store lacks is not refused as the client's mistake", async () => {
    const cached = await cutOff({ eventWindow: { maxEvents: 1 } }, ["1", "2", "3"]);
    const { cacher, store } = cached;
    const at = { match: "EXACT", revision: 2 } as const;
    const page = () => cacher.list({ ...listing, at, order: "MOD_REVISION_ASCENDING", startAfter });
    let startAfter = "a";
    expect(await outcome(cached, page())).toMatchObject({ revision: 2, items: [] });
    startAfter = "b";
    expect(await outcome(cached, page())).toMatchObject({ reason: "INVALID_REQUEST" });
    const get = store.get.bind(store);
    store.get = async (request) => ({ ...(await get(request)), object: undefined });
    expect(await outcome(cached, page())).toMatchObject(unavailable);
  });

  it("a response from before a restore is not returned once the cache holds the new history", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    const { store, clock, cacher, upstream } = cached;
    const before = cacher.currentHistoryId;
    const currentRevision = store.currentRevision.bind(store);
    const list = store.list.bind(store);
    // The cache receives nothing new.
    store.requestProgress = () => {};
    store.currentRevision = async () => 9;
    const { promise, resolve } = Promise.withResolvers<void>();
    let requests = 0;
    store.list = async (request) => {
      if (request.at.match === "LINEARIZABLE") {
        requests++;
        // From the old history; the next response comes after the restore.
        await promise;
        return { revision: 9, items: [], next: undefined, remaining: 0 };
      }
      return list(request);
    };
    const at = { match: "LINEARIZABLE" } as const;
    const response = cacher.list({ prefix: "", limit: 0, at }).then(
      (page) => ({ page, historyId: cacher.currentHistoryId }),
      (error: unknown) => error,
    );
    await clock.elapse(3_500);
    expect(requests).toBe(1);
    store.currentRevision = currentRevision;
    upstream.at(-1)?.end(historyChanged(9, 2));
    await clock.elapse(5_000);
    expect(cacher.currentHistoryId).not.toBe(before);
    resolve();
    await clock.settle();
    expect(await response).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });

  it("its history is not requested while the watch continues", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    let requests = 0;
    const get = cached.store.get.bind(cached.store);
    cached.store.get = (request) => {
      requests++;
      return get(request);
    };
    const at = { match: "LINEARIZABLE" } as const;
    expect(await outcome(cached, cached.cacher.list({ ...listing, at }))).toMatchObject({
      revision: 2,
    });
    expect(requests).toBe(0);
  });
});

describe("If the store's servers name different histories", () => {
  const at = { match: "LINEARIZABLE" } as const;

  it("a revision or a state of another history than the cache's is not returned", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    const { store, cacher } = cached;
    const known = cacher.currentHistoryId;
    store.requestProgress = () => {};
    store.currentRevision = async () => 9;
    store.get = async () => ({ revision: 9, object: undefined, historyId: "another" });
    expect(await outcome(cached, cacher.get({ key: "a", at }))).toMatchObject(unavailable);
    const asked: unknown[] = [];
    Object.assign(store, {
      currentRevision: async (_signal: unknown, historyId: string) => {
        asked.push(historyId);
        throw historyChanged(9, 2, "another");
      },
    });
    expect(await outcome(cached, cacher.get({ key: "a", at }))).toMatchObject(unavailable);
    expect(asked).toEqual([known]);
  });
});

describe("While a watch is open that outlives its history, and the store has another one", () => {
  const at = { match: "LINEARIZABLE" } as const;

  /** A ready cache at revision 4, whose store is at revision 9 of another history, which its responses do not name. */
  async function restored() {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 1, minEvents: 0 } });
    for (const value of ["1", "2", "3"]) await cached.write(["a", value]);
    const { store, cacher } = cached;
    Object.assign(store, { watchOutlivesHistory: true });
    store.requestProgress = () => {};
    store.currentRevision = async () => 9;
    store.get = async () => ({ revision: 9, object: undefined });
    let reads = 0;
    store.historyId = async () => {
      reads++;
      return "another";
    };
    return { ...{ cached, cacher, store }, reads: () => reads };
  }

  it("no watch begins at its revision", async () => {
    const { cached, cacher } = await restored();
    const stream = cacher.watch(everything);
    await cached.clock.settle();
    expect(readAll(stream)).toEqual([]);
    expect(stream.ended).toMatchObject(unavailable);
  });

  it("no response of it is returned as one of the cache's history", async () => {
    const { cached, cacher } = await restored();
    const got = outcome(cached, cacher.get({ key: "a", at: { match: "EXACT", revision: 2 } }));
    expect(await got).toMatchObject(unavailable);
  });

  it("a read for which the cache has to reach its revision reads no id", async () => {
    const { cached, cacher, store, reads } = await restored();
    store.currentRevision = async () => 4;
    const got = cacher.get({ key: "a", at });
    await cached.clock.settle();
    expect(await got).toMatchObject({ revision: 4 });
    expect(reads()).toBe(0);
  });
});

describe("While many reads need the store", () => {
  it("equal reads are sent once, and concurrent ones are bounded", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    const { store, clock, cacher } = cached;
    // The cache receives nothing, although the store has a new revision.
    store.requestProgress = () => {};
    store.currentRevision = async () => 9;
    const requests: { readonly prefix: string; readonly respond: () => void }[] = [];
    store.list = ({ prefix }) =>
      new Promise((resolve) => {
        const respond = (): void =>
          resolve({ revision: 9, items: [], next: undefined, remaining: 0 });
        requests.push({ prefix, respond });
      });
    const at = { match: "LINEARIZABLE" } as const;
    const owners = Array.from({ length: 50 }, () => ({}));
    const lists = owners.flatMap((owner, i) => [
      cacher.list({ prefix: "", limit: 0, at, owner }),
      cacher.list({ prefix: `p${i}`, limit: 0, at, owner }),
    ]);
    const streams = owners.map((owner) =>
      cacher.watch({ ...everything, sendInitialEvents: true, owner }),
    );
    await clock.elapse(3_500);
    expect(requests.length).toBe(32);
    for (let served = 0; served < requests.length; served++) {
      requests[served]?.respond();
      await clock.settle();
      expect(requests.length - served - 1).toBeLessThanOrEqual(32);
    }
    expect(await Promise.all(lists)).toHaveLength(100);
    expect(streams.map(({ state }) => state)).toEqual(streams.map(() => "initial"));
    // One for the shared list, one for the pages of initial states, which are larger, and one for each prefix.
    expect(requests).toHaveLength(52);
  });
});
