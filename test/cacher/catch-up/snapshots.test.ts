import { describe, expect, it } from "vitest";
import { Snapshots } from "../../../src/cacher/catch-up/snapshots.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { FakeClock } from "../../fake-clock.ts";
import { object } from "../objects.ts";

function setUp() {
  const clock = new FakeClock();
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  cache.replace([object("a", 1)], 1);
  const lists = new ListCache(cache, new ChunkCache(), { bytes: 1_000, scanned: 1_000 });
  const retained = new RetainedSnapshots(cache, { idleBytes: 1_000, bytes: 1_000 });
  const snapshots = new Snapshots(cache, clock, lists, retained);
  const get = (prefix: string) =>
    snapshots.get(new Filter({ scope: { prefix }, withPrevious: false }), 1);
  return { clock, get };
}

describe("The states that watches begin with", () => {
  it("are shared for a second", async () => {
    const { clock, get } = setUp();
    const first = await get("");
    clock.advance(1_000);
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
});
