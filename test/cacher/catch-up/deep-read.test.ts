import { describe, expect, it } from "vitest";
import { revisionTooOld, upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { DeepReads } from "../../../src/cacher/catch-up/deep-reads.ts";
import type { CacherOptions } from "../../../src/cacher/options.ts";
import { Projection } from "../../../src/cacher/request/projection.ts";
import { RecentlyShown } from "../../../src/cacher/request/recently-shown.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";

const all = { scope: { prefix: "" }, withPrevious: true } as const;

function reasonOf({ ended }: WatchStream): string | null | undefined {
  return ended instanceof WatchFanoutError ? ended.reason : (ended as null | undefined);
}

/** A Cacher whose window has the last two of as many writes of `a`, from revision 2 on. */
async function written(
  writes: number,
  options: Partial<CacherOptions> = {},
  clock = new FakeClock(),
) {
  const cached = await CachedStore.ready({ eventWindow: { maxEvents: 2 }, ...options }, clock);
  for (let i = 1; i <= writes; i++) await cached.write(["a", `${i}`]);
  const { cacher } = cached;
  const watch = (request: Partial<CacheWatchRequest>): CacheWatcher =>
    cacher.watch({ ...all, afterRevision: undefined, ...request });
  return { ...{ cached, cacher, clock, watch }, store: cached.store };
}

describe("A watch that resumes from before the event window", () => {
  it("gets everything after its revision from the store, then from the cache", async () => {
    const { cached, watch, clock } = await written(6);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    expect(readAll(stream)).toEqual([
      "→2",
      "MODIFIED:a=2(1)@3 MODIFIED:a=3(2)@4 MODIFIED:a=4(3)@5 MODIFIED:a=5(4)@6 MODIFIED:a=6(5)@7 →7",
    ]);
    await cached.write(["a", "7"]);
    expect(readAll(stream)).toEqual(["MODIFIED:a=7(6)@8 →8"]);
    expect([cached.upstream.length, stream.state]).toEqual([2, "live"]);
  });

  it("sends nothing before the store has shown that it has what comes next", async () => {
    const { store, watch, clock } = await written(6);
    await store.compact(4);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    expect(readAll(stream)).toEqual([]);
    expect(stream.ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "2", oldest_revision: "4" },
    });
  });

  it.each([
    ["the first one", 0, 1],
    ["that of the store's compaction", 4, 4],
    ["that of the window, if the store is compacted in it", 6, 5],
  ])(
    "after 0 learns of the smallest revision that is accepted: %s",
    async (_, compacted, oldest) => {
      const { store, watch, clock } = await written(6);
      if (compacted > 0) await store.compact(compacted);
      const metadata = { requested_revision: "0", oldest_revision: String(oldest) };
      const refused = watch({ afterRevision: 0 });
      await clock.settle();
      expect(refused.ended).toMatchObject({ reason: "REVISION_TOO_OLD", metadata });
      const [accepted, below] = [oldest, oldest - 1].map((after) =>
        watch({ afterRevision: after }),
      );
      await clock.settle();
      expect(accepted && read(accepted)).toBe(`→${oldest}`);
      expect(below && reasonOf(below)).toBe("REVISION_TOO_OLD");
    },
  );

  it("after 0 learns of the window's beginning if the store can't be asked", async () => {
    const { store, watch, clock } = await written(6);
    store.get = () => Promise.reject(upstreamUnavailable("The store is away."));
    const refused = watch({ afterRevision: 0 });
    await clock.settle();
    expect(refused.ended).toMatchObject({
      ...{ reason: "REVISION_TOO_OLD", metadata: { oldest_revision: "5" } },
    });
  });

  it("gets a resume point although the store has no event for it", async () => {
    const { watch, clock } = await written(6);
    const stream = watch({ scope: { prefix: "b" }, afterRevision: 2 });
    await clock.settle();
    expect(readAll(stream)).toEqual(["→2", "→7"]);
  });

  it("reads on from the store if the window has dropped its next events meanwhile", async () => {
    const { cached, watch, clock } = await written(3_000);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    expect(read(stream)).toBe("→2");
    // The client takes nothing, and all of the window is replaced.
    for (let i = 0; i < 10; i++) await cached.write(["b", `${i}`]);
    const events: string[] = [];
    for (let i = 0; i < 100; i++) {
      events.push(...readAll(stream).flatMap((batch) => batch.split(" ")));
      await clock.settle();
    }
    const revisions = events.filter((event) => !event.startsWith("→")).map((e) => e.split("@")[1]);
    expect(revisions).toEqual(Array.from({ length: 3_009 }, (_, i) => String(i + 3)));
    expect(stream.state).toBe("live");
  });

  it("shows few large values in a turn of the event loop", async () => {
    const options = { eventWindow: { maxEvents: 2 }, consistencyIntervalMs: 0 };
    const cached = await CachedStore.ready(options, new BusyClock());
    const { cacher, clock } = cached;
    for (let i = 1; i <= 200; i++) await cached.write(["a", "x".repeat(20_000)]);
    let shown = 0;
    const show = (object: StoredObject): StoredObject => {
      shown++;
      return object;
    };
    const view = new Projection("counted", 1, show, new RecentlyShown());
    const stream = cacher.watch({ ...all, withPrevious: false, afterRevision: 2, view });
    let most = 0;
    for (let i = 0; i < 1_000 && shown < 199; i++) {
      const before = shown;
      stream.read();
      most = Math.max(most, shown - before);
      await clock.settle();
    }
    expect(shown).toBe(199);
    expect(most).toBeLessThanOrEqual(turnMs + 2);
  });

  it("pauses the read while its client takes nothing", async () => {
    const { cached, watch, clock } = await written(3_000);
    const stream = watch({ afterRevision: 2 });
    await clock.elapse(1_000);
    const reading = cached.upstream.at(-1);
    let reads = 0;
    const take = reading?.read.bind(reading);
    if (reading !== undefined && take !== undefined)
      reading.read = () => {
        reads++;
        return take();
      };
    await clock.elapse(30_000);
    expect(reads).toBe(0);
    readAll(stream);
    await clock.settle();
    expect(reads).toBeGreaterThan(0);
  });

  it("is ended by the stall timeout if its client takes nothing", async () => {
    const { cacher, watch, clock } = await written(3_000);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    read(stream);
    await clock.elapse(61_000);
    expect(reasonOf(stream)).toBe("SLOW_CONSUMER");
    expect(cacher.stats().watchers["catching up"]).toBe(0);
  });

  it("is ended with REVISION_TOO_OLD if the store is compacted while it is read", async () => {
    const { store, watch, clock } = await written(3_000);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    await store.compact(3_000);
    const batches: string[] = [];
    for (let i = 0; i < 100; i++) {
      batches.push(...readAll(stream));
      await clock.settle();
    }
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD");
    // What it has got has no gap.
    const revisions = batches.join(" ").matchAll(/@(\d+)/g);
    expect(
      Array.from(revisions, ([, revision]) => Number(revision)).every((r, i) => r === i + 3),
    ).toBe(true);
  });

  it("is ended with UPSTREAM_UNAVAILABLE if the store fails while it is read", async () => {
    const { cached, cacher, watch, clock } = await written(3_000);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    cached.upstream.at(-1)?.end(upstreamUnavailable("The store went away."));
    for (let i = 0; i < 5; i++) {
      readAll(stream);
      await clock.settle();
    }
    expect(reasonOf(stream)).toBe("UPSTREAM_UNAVAILABLE");
    expect(cacher.stats().watchers.live).toBe(0);
  });

  it("gets a resume point for what its filter leaves out", async () => {
    const { watch, clock } = await written(3_000, { watchers: { scanEvents: 500 } });
    const stream = watch({ afterRevision: 2, predicate: () => false });
    await clock.elapse(1_000);
    const points: string[] = [];
    for (let i = 0; i < 20; i++) {
      points.push(...readAll(stream));
      await clock.settle();
    }
    expect(points.length).toBeGreaterThan(5);
    expect(points[0]).toBe("→2");
    expect(points.at(-1)).toBe("→3001");
  });

  it("makes no more of a view in one turn than fits its time slice", async () => {
    const { watch, clock } = await written(100);
    const now = clock.now.bind(clock);
    let shown = 0;
    // Each takes 1 ms.
    clock.now = () => now() + shown;
    const show = (object: StoredObject): StoredObject => {
      shown++;
      return object.withoutValue();
    };
    const view = new Projection("slow", 1, show, new RecentlyShown());
    const stream = watch({ afterRevision: 2, withPrevious: false, view });
    await clock.settle();
    expect(read(stream)).toBe("→2");
    read(stream);
    expect(shown).toBeGreaterThan(0);
    expect(shown).toBeLessThan(20);
  });

  it("reads on from the store no further back than a watch may begin", async () => {
    const clock = new FakeClock();
    const deepReads = new DeepReads(clock, { maxRevisions: 1_000 });
    const { cached, watch } = await written(900, { deepReads }, clock);
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    expect(read(stream)).toBe("→2");
    // While it takes what it has, the store moves on.
    for (let i = 0; i < 1_100; i++) await cached.write(["b", `${i}`]);
    for (let i = 0; i < 100; i++) {
      readAll(stream);
      await clock.settle();
    }
    expect(stream.ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "901", oldest_revision: "1001" },
    });
    expect(cached.upstream.length).toBe(2);
    expect(deepReads.stats().active).toBe(0);
  });

  it("remains over a relist, if it may leave out intermediate states, and has what came with that", async () => {
    const { cached, watch, clock } = await written(3_000);
    const latest = watch({ afterRevision: 2, delivery: "LATEST_STATE" });
    const every = watch({ afterRevision: 2 });
    await clock.settle();
    expect([read(latest), read(every)]).toEqual(["→2", "→2"]);
    const [reflected] = cached.upstream;
    reflected?.end(revisionTooOld(3_001, 3_002));
    for (const key of ["b", "c"]) await cached.write([key, "1"]);
    await clock.elapse(5_000);
    const batches: string[] = [];
    for (let i = 0; i < 20; i++) {
      batches.push(...readAll(latest));
      await clock.settle();
    }
    await cached.write(["d", "1"]);
    batches.push(...readAll(latest));
    const revisions = Array.from(batches.join(" ").matchAll(/@(\d+)/g), ([, at]) => Number(at));
    expect(revisions).toEqual(Array.from({ length: 3_002 }, (_, i) => i + 3));
    expect([reasonOf(every), latest.state]).toEqual(["HISTORY_LOST", "live"]);
  });

  it("releases the store when it is closed, drained, or has joined the cache", async () => {
    const deepReads = new DeepReads(new FakeClock());
    const { cached, cacher, watch, clock } = await written(3_000, { deepReads });
    const [joined, closed, drained] = [1, 2, 3].map((at) => watch({ afterRevision: at + 1 }));
    await clock.settle();
    expect(deepReads.stats()).toMatchObject({ active: 3, begun: 3 });
    closed?.close();
    expect(deepReads.stats().active).toBe(2);
    for (let i = 0; i < 20; i++) {
      if (joined !== undefined) readAll(joined);
      await clock.settle();
    }
    expect([joined?.state, deepReads.stats().active]).toEqual(["live", 1]);
    if (drained !== undefined) readAll(drained);
    cacher.drain();
    expect([drained && reasonOf(drained), deepReads.stats().active]).toEqual(["DRAINING", 0]);
    expect(cached.upstream.slice(1).map(({ ended }) => ended)).toEqual([null, null, null]);
  });

  it("leaves no timer behind", async () => {
    const { cacher, watch, clock } = await written(6);
    watch({ afterRevision: 2 });
    await clock.settle();
    await cacher.close();
    await clock.settle();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("Deep reads beyond their bounds", () => {
  /** Watches of as many callers that do not read, with the clock of the bounds. */
  async function bounded(bounds: ConstructorParameters<typeof DeepReads>[1]) {
    const clock = new FakeClock();
    const deepReads = new DeepReads(clock, bounds);
    return { deepReads, ...(await written(3_000, { deepReads }, clock)) };
  }

  it("wait for their turn, and callers take turns", async () => {
    const { deepReads, watch, clock } = await bounded({ concurrent: 2, concurrentPerGroup: 2 });
    const [greedy, other] = [{}, {}];
    const first = [1, 2, 3].map(() => watch({ afterRevision: 2, owner: greedy }));
    const second = watch({ afterRevision: 2, owner: other });
    await clock.settle();
    expect(deepReads.stats()).toMatchObject({ active: 2, waiting: 2 });
    expect(read(second)).toBeUndefined();
    first[0]?.close();
    first[1]?.close();
    await clock.settle();
    expect(read(second)).toBe("→2");
    expect(deepReads.stats()).toMatchObject({ active: 2, waiting: 0 });
  });

  it("are refused after 10 s, with the option that bounds them", async () => {
    const { deepReads, watch, clock } = await bounded({ concurrent: 3, concurrentPerGroup: 2 });
    const greedy = {};
    const own = [1, 2, 3].map(() => watch({ afterRevision: 2, owner: greedy }));
    watch({ afterRevision: 2, owner: {} });
    const others = watch({ afterRevision: 2, owner: {} });
    await clock.elapse(9_999);
    expect(own[2]?.ended).toBeUndefined();
    await clock.elapse(1);
    expect(own[2]?.ended).toMatchObject({
      reason: "RESUME_LIMITED",
      metadata: { limit_name: "deep-reads-per-identity", limit: "2" },
    });
    expect(others.ended).toMatchObject({
      reason: "RESUME_LIMITED",
      metadata: { limit_name: "deep-reads", limit: "3" },
    });
    expect(deepReads.stats()).toMatchObject({ active: 3, waiting: 0 });
  });

  it("are refused at once if too many wait: of the caller with the most", async () => {
    const { watch, clock } = await bounded({ concurrent: 1, queued: 2 });
    const [greedy, other] = [{}, {}];
    const held = watch({ afterRevision: 2, owner: {} });
    const waiting = [1, 2].map(() => watch({ afterRevision: 2, owner: greedy }));
    await clock.settle();
    const modest = watch({ afterRevision: 2, owner: other });
    await clock.settle();
    expect([...waiting, modest, held].map(reasonOf)).toEqual([
      ...[undefined, "RESUME_LIMITED", undefined, undefined],
    ]);
  });

  it("end after their maximum time, and can be resumed from where they have come to", async () => {
    const { watch, clock } = await bounded({ maxMs: 30_000 });
    const stream = watch({ afterRevision: 2 });
    await clock.settle();
    read(stream);
    const batch = read(stream);
    await clock.elapse(30_000);
    expect(stream.ended).toMatchObject({
      reason: "RESUME_LIMITED",
      metadata: { limit_name: "deep-read-timeout" },
    });
    const at = Number(batch?.split("→")[1]);
    const resumed = watch({ afterRevision: at });
    await clock.settle();
    expect([read(resumed), read(resumed)?.split(" ")[0]]).toEqual([
      `→${at}`,
      `MODIFIED:a=${at}(${at - 1})@${at + 1}`,
    ]);
  });

  it("are REVISION_TOO_OLD beyond a number of revisions, with the smallest one that is accepted", async () => {
    const { deepReads, watch, clock } = await bounded({ maxRevisions: 1_000 });
    const [near, far] = [2_001, 2_000].map((afterRevision) => watch({ afterRevision }));
    await clock.settle();
    expect(near && read(near)).toBe("→2001");
    expect(far?.ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "2000", oldest_revision: "2001" },
    });
    expect(deepReads.stats().begun).toBe(1);
  });

  it("leave the queue when their client closes them", async () => {
    const { deepReads, watch, clock } = await bounded({ concurrent: 1 });
    watch({ afterRevision: 2 });
    const waiting = watch({ afterRevision: 2 });
    await clock.settle();
    waiting.close();
    expect(deepReads.stats()).toMatchObject({ active: 1, waiting: 0 });
  });
});
