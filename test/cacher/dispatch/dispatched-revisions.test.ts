import { describe, expect, it } from "vitest";
import type { DispatchTarget } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "../../../src/cacher/dispatch/watcher-bounds.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch, type WatchEvent } from "../../../src/model/event.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { event } from "../objects.ts";

/** A dispatcher over an empty cache at revision 1. `apply` takes events without dispatching them. */
function open(clock: FakeClock) {
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  cache.replace([], 1);
  const dispatcher = new Dispatcher(cache, clock, defaultWatcherBounds);
  const apply = (revision: number, ...events: WatchEvent[]): void =>
    cache.apply(new WatchBatch(revision, events));
  return { dispatcher, apply };
}

/** Joins a watcher of everything that takes all, and returns what it was offered. */
function joined(dispatcher: Dispatcher): WatchBatch[] {
  const offered: WatchBatch[] = [];
  const take = (batch: WatchBatch): boolean => offered.push(batch) > 0;
  const watcher: DispatchTarget = {
    filter: new Filter({ scope: { prefix: "" }, withPrevious: false }),
    options: { eagerBookmarks: false },
    position: 1,
    offer: take,
    stall: () => {},
    bookmark: take,
    requestBookmark: take,
    notify: () => {},
  };
  dispatcher.join(watcher);
  return offered;
}

describe("A dispatcher", () => {
  it("has no bookmark above the events that it has offered", () => {
    const { dispatcher, apply } = open(new FakeClock());
    const offered = joined(dispatcher);
    apply(2, event("ADDED", "a", 2));
    dispatcher.flush();
    apply(3, event("ADDED", "b", 3));
    expect(offered.map(({ revision }) => revision)).toEqual([2]);
    expect(dispatcher.bookmark.revision).toBe(2);
  });

  it("offers all events of a revision in one batch, however long a round takes", async () => {
    const clock = new BusyClock();
    const { dispatcher, apply } = open(clock);
    const offered = joined(dispatcher);
    const keys = Array.from({ length: 30_000 }, (_, i) => `k${i}`);
    apply(2, ...keys.map((key) => event("ADDED", key, 2)));
    dispatcher.wake();
    await clock.settle();
    expect(offered.map(({ revision, events }) => [revision, events.length])).toEqual([[2, 30_000]]);
  });
});
