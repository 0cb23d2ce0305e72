import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { DeepReads } from "../../../src/cacher/catch-up/deep-reads.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

function reasonOf(stream: WatchStream): string | null | undefined {
  const { ended } = stream;
  return ended instanceof WatchFanoutError ? ended.reason : (ended as null | undefined);
}

describe("The opening of a watch", () => {
  it("answers a watch from now with the store's revision, then delivers later events", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["a", "1"]);
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→2"]);
    await cached.write(["b", "2"]);
    expect(readAll(stream)).toEqual(["ADDED:b=2@3 →3"]);
  });

  it("answers a resumed watch with exactly its revision, then delivers the events after it", async () => {
    const cached = await CachedStore.ready();
    for (const value of ["1", "2", "3"]) await cached.write(["a", value]);
    const stream = cached.cacher.watch({ ...everything, afterRevision: 2 });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→2", "MODIFIED:a=2@3 MODIFIED:a=3@4 →4"]);
  });

  it("resumes from before the start of the cache, as far as the store has the events", async () => {
    const cached = new CachedStore();
    for (const value of ["1", "2", "3"]) await cached.write(["a", value]);
    cached.cacher.start();
    await cached.clock.elapse(200);
    const stream = cached.cacher.watch({ ...everything, afterRevision: 1 });
    await cached.clock.settle();
    expect(readAll(stream).slice(1)).toEqual(["ADDED:a=1@2 MODIFIED:a=2@3 MODIFIED:a=3@4 →4"]);
  });

  it("sends a requested initial state first: opened, in key order, closed by its revision", async () => {
    const cached = await CachedStore.ready();
    await cached.write(["b", "1"]);
    await cached.write(["a", "2"]);
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["…", "ADDED:a=2@3 ADDED:b=1@2 complete →3"]);
    await cached.write(["a", null]);
    expect(readAll(stream)).toEqual(["DELETED:a=2@4 →4"]);
  });

  it("sends a large state in chunks, unchanged by later writes", async () => {
    const cached = await CachedStore.ready({ watchers: { batchBytes: 150 } });
    await cached.write(["a", "1"], ["b", "1"], ["c", "1"], ["d", "1"], ["e", "1"]);
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    const began = [read(stream), read(stream)];
    await cached.write(["a", null], ["c", "2"], ["f", "1"]);
    expect([...began, ...readAll(stream)]).toEqual([
      "…",
      "ADDED:a=1@2 ADDED:b=1@2 ADDED:c=1@2 …",
      "ADDED:d=1@2 ADDED:e=1@2 complete →2",
      "DELETED:a=1@3 MODIFIED:c=2@3 ADDED:f=1@3 →3",
    ]);
  });

  it("sends many watches one large state, also if writes come between them", async () => {
    const cached = await CachedStore.ready({ watchers: { batchBytes: 150 } });
    await cached.write(["a", "1"], ["b", "1"], ["c", "1"], ["d", "1"]);
    const crowd: CacheWatcher[] = [];
    const join = (): void => {
      crowd.push(cached.cacher.watch({ ...everything, sendInitialEvents: true }));
    };
    join();
    for (let i = 0; i < 20; i++) {
      await cached.write(["e", String(i)]);
      join();
    }
    await cached.clock.elapse(100);
    const states = crowd.map((watcher) => {
      const batches = [watcher.read(), watcher.read(), watcher.read(), watcher.read()];
      return batches.slice(1);
    });
    // Unchanged chunks are shared by all. The first was opened before the writes; the others waited for the next state.
    expect(new Set(states.map(([first]) => first)).size).toBe(1);
    expect(new Set(states.map(([, second]) => second)).size).toBe(2);
    expect(new Set(states.slice(1).map(([, second]) => second)).size).toBe(1);
    const ends = crowd
      .slice(1)
      .map((_, i) => states[i + 1]?.find((batch) => batch?.initialEventsEnd));
    expect(ends.map((end) => end?.revision)).toEqual(ends.map(() => 22));
  });

  describe.each([
    ["any state", 0],
    ["a state that it has seen before", 2],
    ["the newest state", undefined],
  ])(
    "with %s begins with no state older than the cache at the request:",
    (_what, afterRevision) => {
      it.each([
        ["a change", "2", "ADDED:a=2@3 ADDED:b=1@2 complete →3"],
        ["a deletion", null, "ADDED:b=1@2 complete →3"],
      ])("%s", async (_change, value, state) => {
        const cached = await CachedStore.ready();
        await cached.write(["a", "1"], ["b", "1"]);
        const request = { ...everything, sendInitialEvents: true, afterRevision };
        const before = cached.cacher.watch(request);
        await cached.clock.settle();
        expect(readAll(before)).toEqual(["…", "ADDED:a=1@2 ADDED:b=1@2 complete →2"]);
        await cached.write(["a", value]);
        const after = cached.cacher.watch(request);
        await cached.clock.elapse(100);
        expect(readAll(after)).toEqual(["…", state]);
      });
    },
  );

  it.each([
    ["one key", { key: "a/1" }, ["ADDED:a/1=1@2"]],
    ["a prefix", { prefix: "a/" }, ["ADDED:a/1=1@2", "ADDED:a/2=1@2"]],
    ["an absent key", { key: "x" }, []],
    ["an absent prefix", { prefix: "x" }, []],
  ])("sends only the state of %s", async (_what, scope, events) => {
    const cached = await CachedStore.ready();
    await cached.write(["a/1", "1"], ["a/2", "1"], ["b/1", "1"]);
    const stream = cached.cacher.watch({ ...everything, scope, sendInitialEvents: true });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["…", [...events, "complete", "→2"].join(" ")]);
  });

  it("without deep reads refuses a revision before the event window, and reports the oldest accepted one", async () => {
    const clock = new FakeClock();
    const deepReads = new DeepReads(clock, { concurrent: 0 });
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 2 }, deepReads }, clock);
    for (const value of ["1", "2", "3", "4"]) await cached.write(["a", value]);
    const stream = cached.cacher.watch({ ...everything, afterRevision: 2 });
    await cached.clock.settle();
    expect(read(stream)).toBeUndefined();
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD");
    expect(stream.ended).toMatchObject({
      metadata: { requested_revision: "2", oldest_revision: "3" },
    });
    const accepted = cached.cacher.watch({ ...everything, afterRevision: 3 });
    await cached.clock.settle();
    expect(readAll(accepted)).toEqual(["→3", "MODIFIED:a=3@4 MODIFIED:a=4@5 →5"]);
  });

  it("refuses a revision above the store's, before anything is sent", async () => {
    const cached = await CachedStore.ready();
    for (const sendInitialEvents of [false, true]) {
      const stream = cached.cacher.watch({ ...everything, afterRevision: 9, sendInitialEvents });
      await cached.clock.settle();
      expect(readAll(stream)).toEqual([]);
      expect(reasonOf(stream)).toBe("HISTORY_CHANGED");
    }
  });

  it("refuses all watches until the cache has been filled", async () => {
    const cached = new CachedStore();
    const stream = cached.cacher.watch(everything);
    expect(reasonOf(stream)).toBe("NOT_READY");
  });
});

describe("A live watch", () => {
  it("gets a transaction whole, in one batch", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    readAll(stream);
    await cached.write(["a", "1"], ["b", "1"], ["c", "1"]);
    expect(readAll(stream)).toEqual(["ADDED:a=1@2 ADDED:b=1@2 ADDED:c=1@2 →2"]);
  });

  it("shares one batch with equal watches", async () => {
    const cached = await CachedStore.ready();
    const scope = { prefix: "a/" };
    const streams = [1, 2, 3].map(() => cached.cacher.watch({ ...everything, scope }));
    await cached.clock.settle();
    for (const stream of streams) readAll(stream);
    await cached.write(["a/1", "1"]);
    const batches = streams.map((stream) => stream.read());
    expect(batches[0]?.events).toHaveLength(1);
    expect(new Set(batches).size).toBe(1);
  });

  it.each([
    ["the previous object if requested", true, "MODIFIED:a=2(1)@3 →3"],
    ["no previous object otherwise", false, "MODIFIED:a=2@3 →3"],
  ])("gets %s", async (_what, withPrevious, expected) => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...everything, withPrevious });
    await cached.clock.settle();
    await cached.write(["a", "1"]);
    readAll(stream);
    await cached.write(["a", "2"]);
    expect(readAll(stream)).toEqual([expected]);
  });

  it("gets no other events, and keeps its resume point", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...everything, scope: { prefix: "a/" } });
    await cached.clock.settle();
    readAll(stream);
    await cached.write(["b/1", "1"], ["a", "1"]);
    expect(readAll(stream)).toEqual([]);
  });

  it("gets no more after its client closed it, and is removed", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    stream.close();
    stream.close();
    await cached.write(["a", "1"]);
    expect(readAll(stream)).toEqual([]);
    expect(stream.ended).toBeNull();
    expect(cached.cacher.stats().watchers.live).toBe(0);
  });
});

describe("An unsynced watch", () => {
  const tight = { watchers: { maxBufferBatches: 2 } } as const;

  it("stalls when its buffer is full, and catches up without gap or repetition", async () => {
    const cached = await CachedStore.ready(tight);
    const slow = cached.cacher.watch(everything);
    await cached.clock.settle();
    expect(readAll(slow)).toEqual(["→1"]);
    for (const value of ["1", "2", "3", "4"]) await cached.write(["a", value]);
    expect(slow.state).toBe("stalled");
    expect(read(slow)).toBe("ADDED:a=1@2 →2");
    await cached.write(["a", "5"]);
    expect(readAll(slow)).toEqual([
      "MODIFIED:a=2@3 →3",
      "MODIFIED:a=3@4 MODIFIED:a=4@5 MODIFIED:a=5@6 →6",
    ]);
    expect(slow.state).toBe("live");
    await cached.write(["a", "6"]);
    expect(readAll(slow)).toEqual(["MODIFIED:a=6@7 →7"]);
  });

  it("does not include one that reads at once, even if a round exceeds the event window", async () => {
    const options = { eventWindow: { maxEvents: 3 }, watchers: { batchBytes: 1 } };
    const cached = await CachedStore.ready(options);
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    const got = readAll(stream);
    stream.onReadable(() => got.push(...readAll(stream)));
    const writes = [1, 2, 3, 4, 5, 6].map((value) =>
      cached.store.put({ key: "a", value: Buffer.from(String(value)) }),
    );
    await Promise.all(writes);
    await cached.clock.settle();
    expect(got.at(-1)).toBe("MODIFIED:a=6@7 →7");
    expect(reasonOf(stream)).toBeUndefined();
  });

  it("does not delay other watches", async () => {
    const cached = await CachedStore.ready(tight);
    const [slow, quick] = [cached.cacher.watch(everything), cached.cacher.watch(everything)];
    await cached.clock.settle();
    readAll(slow);
    readAll(quick);
    const got: string[] = [];
    for (const value of ["1", "2", "3", "4"]) {
      await cached.write(["a", value]);
      got.push(...readAll(quick));
    }
    expect(got.at(-1)).toBe("MODIFIED:a=4@5 →5");
    expect(got).toHaveLength(4);
    expect(slow.state).toBe("stalled");
  });

  it("stalls by bytes, but a single batch always has room", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBytes: 100 } });
    const slow = cached.cacher.watch(everything);
    await cached.clock.settle();
    readAll(slow);
    await cached.write(["a", "x".repeat(500)]);
    expect(slow.state).toBe("live");
    await cached.write(["b", "1"]);
    expect(slow.state).toBe("stalled");
    expect(readAll(slow)).toHaveLength(2);
    expect(slow.state).toBe("live");
  });

  it.each(["EVERY_EVENT", "LATEST_STATE"] as const)(
    "knows since when its client has an event to read, with %s",
    async (delivery) => {
      const cached = await CachedStore.ready({
        watchers: { maxBufferBytes: 100, batchBytes: 100 },
      });
      const slow = cached.cacher.watch({ ...everything, delivery });
      await cached.clock.settle();
      expect(readAll(slow)).toEqual(["→1"]);
      expect(slow.unreadSince).toBeUndefined();
      const times: number[] = [];
      for (const key of ["a", "b", "c", "d"]) {
        times.push(cached.clock.now());
        await cached.write([key, "x".repeat(500)]);
        await cached.clock.elapse(1_000);
      }
      // The first is in the buffer, the others are read from the event window, or as the latest state.
      expect(slow.state).toBe("stalled");
      const since = (): number | undefined => slow.unreadSince;
      expect(since()).toBe(times[0]);
      expect(slow.read()?.events).toHaveLength(1);
      expect(since()).toBe(times[1]);
      slow.read();
      // Parts of one state have the time of its oldest event.
      expect(since()).toBe(delivery === "EVERY_EVENT" ? times[2] : times[1]);
      readAll(slow);
      expect([slow.state, since()]).toEqual(["live", undefined]);
    },
  );

  it("ends with SLOW_CONSUMER when the event window drops its next events", async () => {
    const cached = await CachedStore.ready({ ...tight, eventWindow: { maxEvents: 3 } });
    const slow = cached.cacher.watch(everything);
    await cached.clock.settle();
    expect(readAll(slow)).toEqual(["→1"]);
    for (let value = 0; value < 10; value++) await cached.write(["a", String(value)]);
    expect(readAll(slow)).toEqual(["ADDED:a=0@2 →2", "MODIFIED:a=1@3 →3"]);
    expect(reasonOf(slow)).toBe("SLOW_CONSUMER");
    expect(cached.cacher.stats().slowConsumers).toBe(1);
  });

  it("ends with SLOW_CONSUMER when its client takes nothing for the stall timeout", async () => {
    const cached = await CachedStore.ready({ watchers: { stallTimeoutMs: 10_000 } });
    const stuck = cached.cacher.watch(everything);
    const idle = cached.cacher.watch({ ...everything, scope: { prefix: "other/" } });
    await cached.clock.settle();
    readAll(stuck);
    readAll(idle);
    await cached.write(["a", "1"]);
    await cached.clock.elapse(9_000);
    expect(reasonOf(stuck)).toBeUndefined();
    await cached.clock.elapse(2_000);
    expect(reasonOf(stuck)).toBe("SLOW_CONSUMER");
    expect(stuck.read()).toBeUndefined();
    expect(reasonOf(idle)).toBeUndefined();
  });

  it("keeps events beyond the event window while it takes its initial state, up to a bound", async () => {
    const options = { eventWindow: { maxEvents: 2 }, watchers: { retainedEventBytes: 2_000 } };
    const cached = await CachedStore.ready(options);
    await cached.write(["a", "0"]);
    const stream = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    const revisions: number[] = [];
    for (let value = 1; value <= 5; value++) {
      revisions.push(await cached.write(["a", String(value)]));
    }
    await cached.clock.elapse(1_000);
    const expected = revisions.map((revision, i) => `MODIFIED:a=${i + 1}@${revision}`);
    expect(readAll(stream)).toEqual(["…", "ADDED:a=0@2 complete →2", `${expected.join(" ")} →7`]);

    const beyond = cached.cacher.watch({ ...everything, sendInitialEvents: true });
    await cached.clock.settle();
    for (let value = 0; value < 30; value++) await cached.write(["a", String(value)]);
    await cached.clock.elapse(1_000);
    expect(readAll(beyond)).toEqual(["…"]);
    expect(reasonOf(beyond)).toBe("SLOW_CONSUMER");
  });
});

describe("Bookmarks", () => {
  it("are sent every interval while no event moves the resume point", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...everything, bookmarkIntervalMs: 10_000 });
    await cached.clock.settle();
    readAll(stream);
    await cached.clock.elapse(9_000);
    expect(readAll(stream)).toEqual([]);
    await cached.clock.elapse(2_000);
    expect(readAll(stream)).toEqual(["→1"]);
    await cached.clock.elapse(5_000);
    await cached.write(["a", "1"]);
    expect(readAll(stream)).toEqual(["ADDED:a=1@2 →2"]);
    await cached.clock.elapse(9_000);
    expect(readAll(stream)).toEqual([]);
    await cached.clock.elapse(2_000);
    expect(readAll(stream)).toEqual(["→2"]);
  });

  it("advance a watch past events that it does not match", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({
      ...everything,
      scope: { key: "a" },
      bookmarkIntervalMs: 10_000,
    });
    await cached.clock.settle();
    readAll(stream);
    const revision = await cached.write(["b", "1"]);
    await cached.clock.elapse(11_000);
    expect(readAll(stream)).toEqual([`→${revision}`]);
  });

  it("are sent once, two seconds before the deadline", async () => {
    const cached = await CachedStore.ready();
    const deadline = cached.clock.now() + 30_000;
    const stream = cached.cacher.watch({ ...everything, deadline });
    await cached.clock.settle();
    readAll(stream);
    await cached.clock.elapse(27_500);
    expect(readAll(stream)).toEqual([]);
    await cached.clock.elapse(1_000);
    expect(readAll(stream)).toEqual(["→1"]);
    await cached.clock.elapse(1_000);
    expect(readAll(stream)).toEqual([]);
  });

  it("are sent before the deadline as soon as an unsynced watch is synced", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const deadline = cached.clock.now() + 30_000;
    const stream = cached.cacher.watch({ ...everything, deadline });
    await cached.clock.settle();
    readAll(stream);
    await cached.write(["a", "1"]);
    await cached.write(["a", "2"]);
    await cached.clock.elapse(28_600);
    expect(readAll(stream)).toHaveLength(2);
    await cached.clock.elapse(600);
    expect(readAll(stream)).toEqual(["→3"]);
  });

  it("are sent to eager watches as soon as the cache reaches a newer revision", async () => {
    const cached = await CachedStore.ready();
    const scope = { key: "a" };
    const eager = cached.cacher.watch({ ...everything, scope, eagerBookmarks: true });
    const patient = cached.cacher.watch({ ...everything, scope });
    await cached.clock.settle();
    readAll(eager);
    readAll(patient);
    const revision = await cached.write(["b", "1"]);
    expect(readAll(eager)).toEqual([`→${revision}`]);
    expect(readAll(patient)).toEqual([]);
  });

  it("are not sent to a watch whose client takes nothing", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const stream = cached.cacher.watch({ ...everything, bookmarkIntervalMs: 1_000 });
    await cached.clock.settle();
    readAll(stream);
    await cached.write(["a", "1"]);
    await cached.write(["a", "2"]);
    await cached.clock.elapse(5_000);
    expect(readAll(stream)).toEqual(["ADDED:a=1@2 →2", "MODIFIED:a=2@3 →3"]);
  });

  it("bring an eager watch that resumes to the revision of the cache", async () => {
    const cached = await CachedStore.ready();
    const revision = await cached.write(["b", "1"]);
    const stream = cached.cacher.watch({
      ...everything,
      scope: { key: "a" },
      afterRevision: 1,
      eagerBookmarks: true,
    });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→1", `→${revision}`]);
  });

  it("are sent to every watch on a progress request", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...everything, scope: { key: "a" } });
    await cached.clock.settle();
    readAll(stream);
    const revision = await cached.write(["b", "1"]);
    cached.cacher.requestProgress();
    await cached.clock.elapse(200);
    expect(readAll(stream)).toEqual([`→${revision}`]);
  });
});

describe("The end of watches", () => {
  it("is a last bookmark and DRAINING on shutdown", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...everything, scope: { key: "a" } });
    await cached.clock.settle();
    readAll(stream);
    const revision = await cached.write(["b", "1"]);
    cached.cacher.drain();
    cached.cacher.drain();
    expect(readAll(stream)).toEqual([`→${revision}`]);
    expect(reasonOf(stream)).toBe("DRAINING");
    expect(reasonOf(cached.cacher.watch(everything))).toBe("DRAINING");
  });

  it("is HISTORY_LOST if the next events are lost upstream", async () => {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 10 } });
    await cached.write(["a", "1"]);
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    readAll(stream);
    // Written and compacted before the upstream watch reads again.
    const last = await cached.store.txn([{ type: "put", key: "a", value: Buffer.from("2") }]);
    const current = await cached.store.txn([{ type: "put", key: "a", value: Buffer.from("3") }]);
    await cached.store.compact(current);
    await cached.clock.elapse(10_000);
    expect(reasonOf(stream)).toBe("HISTORY_LOST");
    expect(cached.cacher.stats().relists).toBe(1);
    const stale = cached.cacher.watch({ ...everything, afterRevision: last });
    await cached.clock.settle();
    expect(reasonOf(stale)).toBe("REVISION_TOO_OLD");
  });

  it("is immediate if the client closes it when it is notified", async () => {
    const cached = await CachedStore.ready({ watchers: { batchBytes: 1 } });
    const stream = cached.cacher.watch(everything);
    await cached.clock.settle();
    readAll(stream);
    stream.onReadable(() => stream.close());
    for (const key of ["a", "b", "c"]) void cached.store.put({ key, value: Buffer.from("1") });
    await cached.clock.settle();
    expect(stream.ended).toBeNull();
    expect(readAll(stream)).toEqual([]);
  });

  it("by an exception of one client's listener does not affect other watches", async () => {
    const cached = await CachedStore.ready();
    const [broken, sound] = [cached.cacher.watch(everything), cached.cacher.watch(everything)];
    await cached.clock.settle();
    readAll(broken);
    readAll(sound);
    broken.onReadable(() => {
      throw new Error("a reader's own fault");
    });
    await cached.write(["a", "1"]);
    expect(reasonOf(broken)).toBe("INTERNAL");
    expect(readAll(sound)).toEqual(["ADDED:a=1@2 →2"]);
  });

  it("leaves no timer and no watcher when the Cacher is closed", async () => {
    const cached = await CachedStore.ready();
    for (let i = 0; i < 5; i++) cached.cacher.watch(everything);
    await cached.clock.settle();
    await cached.cacher.close();
    await cached.cacher.close();
    await cached.clock.settle();
    expect(cached.clock.pendingTimers).toBe(0);
    expect(Object.values(cached.cacher.stats().watchers)).toEqual([0, 0, 0, 0, 0]);
  });
});
