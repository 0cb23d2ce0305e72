import { expect, test } from "vitest";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, readAll } from "../cached-store.ts";

test("Each dispatch round reports the time since its oldest event arrived, once", async () => {
  const reported: number[] = [];
  const cached = await CachedStore.ready({
    watchers: { dispatchIntervalMs: 20 },
    stages: { dispatched: (latencyMs) => void reported.push(latencyMs) },
  });
  const { clock } = cached;
  expect(reported).toEqual([]);
  clock.advance(1_000);
  await cached.write(["a", "x"], ["b", "x"]);
  expect(reported).toEqual([0]);
  // The next round waits for the interval: `c` for 20 ms, `d` for 5 ms.
  await cached.write(["c", "x"]);
  clock.advance(15);
  await cached.write(["d", "x"]);
  expect(reported).toEqual([0]);
  clock.advance(5);
  await clock.settle();
  expect(reported).toEqual([0, 20]);
});

test("Events are reported when they are in the cache, and when a live watch's client reads them", async () => {
  const applied: number[] = [];
  const delivered: number[] = [];
  const cached = await CachedStore.ready({
    stages: {
      applied: (latencyMs) => void applied.push(latencyMs),
      delivered: (latencyMs) => void delivered.push(latencyMs),
    },
  });
  const { clock, cacher } = cached;
  const watch = cacher.watch({
    scope: { prefix: "" },
    withPrevious: false,
    afterRevision: undefined,
  });
  await clock.settle();
  readAll(watch);
  await cached.write(["a", "x"]);
  expect([applied, delivered]).toEqual([[0], []]);
  clock.advance(300);
  // The client was slow.
  expect(readAll(watch)).toEqual(["ADDED:a=x@2 →2"]);
  expect([applied, delivered]).toEqual([[0], [300]]);
  // A bookmark has no events, and a watch that catches up reads events of any age.
  cacher.requestProgress();
  await clock.settle();
  readAll(cacher.watch({ scope: { prefix: "" }, withPrevious: false, afterRevision: 1 }));
  await clock.settle();
  readAll(watch);
  expect(delivered).toEqual([300]);
});

test("An event is as old as its batch says, if that had to wait before it was applied", () => {
  const clock = new FakeClock();
  const cache = new WatchCache(
    { ageMs: 60_000, minEvents: 0, maxEvents: 10, maxBytes: 1e6 },
    clock,
  );
  clock.advance(500);
  const object = new StoredObject("a", Buffer.from("x"), 2, 2, 1, 0n);
  const batch = new WatchBatch(2, [new WatchEvent("ADDED", object, undefined)]).arrived(200);
  cache.apply(batch, batch.arrivedAt);
  expect(cache.eventWindow.oldestAgeMs).toBe(300);
});
