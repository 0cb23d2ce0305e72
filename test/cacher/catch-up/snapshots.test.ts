import { describe, expect, it, vi } from "vitest";
import { Snapshots } from "../../../src/cacher/catch-up/snapshots.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { FakeClock } from "../../fake-clock.ts";
import { finish } from "../finish.ts";
import { event, object } from "../objects.ts";

function setUp() {
  const clock = new FakeClock();
  clock.advance(5_000);
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  cache.replace([object("a", 1)], 1);
  const lists = new ListCache(cache, new ChunkCache(), { bytes: 1_000, scanned: 1_000 });
  const retained = new RetainedSnapshots(cache, { idleBytes: 1_000, bytes: 1_000 });
  const snapshots = new Snapshots(cache, clock, lists, retained);
  const get = (prefix: string) =>
    snapshots.get(new Filter({ scope: { prefix }, withPrevious: false }), 1);
  return { clock, get, cache, lists, retained, snapshots };
}

describe("The states that watches begin with", () => {
  it("are shared for a second", async () => {
    const { clock, get, snapshots } = setUp();
    const first = await get("");
    clock.advance(1_000);
    snapshots.expire();
    expect(await get("")).toBe(first);
    clock.advance(1);
    expect(await get("")).not.toBe(first);
  });

  it("are kept for 16 filters: above that the oldest is dropped", async () => {
    const { get } = setUp();
    const taken = [];
    for (let i = 0; i < 17; i++) taken.push(await get(`p${i}`));
    for (let i = 1; i < 17; i++) expect(await get(`p${i}`)).toBe(taken[i]);
    expect(await get("p0")).not.toBe(taken[0]);
  });

  it("count as newer once they are taken again: the oldest is another one then", async () => {
    const { clock, cache, get, snapshots } = setUp();
    const taken = [];
    for (let i = 0; i < 16; i++) taken.push(await get(`p${i}`));
    cache.apply(new WatchBatch(2, []));
    clock.advance(50);
    const filter = new Filter({ scope: { prefix: "p0" }, withPrevious: false });
    const again = await snapshots.get(filter, 2);
    expect(again).not.toBe(taken[0]);
    await get("p16");
    expect(await get("p0")).toBe(again);
    expect(await get("p2")).toBe(taken[2]);
    expect(await get("p1")).not.toBe(taken[1]);
  });

  it("are not shared over a relist, whose revision may be the same", async () => {
    const { cache, get, snapshots } = setUp();
    await get("");
    cache.replace([object("b", 1)], 1);
    snapshots.clear();
    const { state, node } = await get("");
    expect(finish(state.chunk(undefined)).items.map(({ key }) => key)).toEqual(["b"]);
    expect(node).toBe(cache.eventWindow.newest);
  });

  it("are taken for the revision that is needed: a recent large one is waited for until it is 50 ms old", async () => {
    const { clock, cache, snapshots } = setUp();
    const all = new Filter({ scope: { prefix: "" }, withPrevious: false });
    const first = await snapshots.get(all, 1);
    cache.apply(new WatchBatch(2, [event("ADDED", "b", 2)]));
    clock.advance(10);
    let second: typeof first | undefined;
    const pending = snapshots.get(all, 2).then((taken) => {
      second = taken;
    });
    await clock.elapse(39);
    expect(second).toBeUndefined();
    cache.apply(new WatchBatch(3, [event("ADDED", "c", 3)]));
    await clock.elapse(1);
    await pending;
    expect(second?.state.revision).toBe(3);
    expect(second?.node).toBe(cache.eventWindow.newest);
    // One that is old enough, or has a single chunk, is not waited for.
    clock.advance(50);
    cache.apply(new WatchBatch(4, []));
    expect((await snapshots.get(all, 4)).state.revision).toBe(4);
    finish((await snapshots.get(all, 4)).state.chunk(undefined));
    (await snapshots.get(all, 4)).state.find(undefined);
    cache.apply(new WatchBatch(5, []));
    expect((await snapshots.get(all, 5)).state.revision).toBe(5);
  });

  it("may be a single object, which keeps no other alive and has one chunk", async () => {
    const { cache, retained, snapshots } = setUp();
    const of = (key: string): Filter => new Filter({ scope: { key }, withPrevious: false });
    const whole = vi.spyOn(cache.state, "snapshot");
    const { state } = await snapshots.get(of("a"), 1);
    expect(state.isLarge).toBe(false);
    state.hold({ fail: () => {} });
    expect(retained.stats().snapshots).toBe(0);
    cache.apply(new WatchBatch(2, [event("DELETED", "a", 2)]));
    const keys = finish(state.chunk(undefined)).items.map(({ key }) => key);
    const { state: absent } = await snapshots.get(of("b"), 1);
    expect([keys, finish(absent.chunk(undefined)).items]).toEqual([["a"], []]);
    expect(whole).not.toHaveBeenCalled();
  });

  it("may be large until their only chunk is known", async () => {
    const { get } = setUp();
    const { state } = await get("");
    expect(state.isLarge).toBe(true);
    finish(state.chunk(undefined));
    state.find(undefined);
    expect(state.isLarge).toBe(false);
  });

  it("end all their readers when they are evicted, and are kept while they have one", async () => {
    const { get, retained } = setUp();
    const { state } = await get("");
    const failed: string[] = [];
    const readers = ["one", "other"].map((name) => ({
      fail: (error: Error) => failed.push(`${name}: ${error.message}`),
    }));
    for (const reader of readers) state.hold(reader);
    for (const reader of readers) {
      expect(retained.stats().snapshots).toBe(1);
      state.release(reader);
    }
    expect(retained.stats().snapshots).toBe(0);
    for (const reader of readers) state.hold(reader);
    state.evict(77);
    expect(failed).toEqual([
      expect.stringMatching(/^one: .*revision 1.*77 bytes/),
      expect.stringMatching(/^other: .*revision 1.*77 bytes/),
    ]);
    expect(retained.stats().snapshots).toBe(0);
  });
});
