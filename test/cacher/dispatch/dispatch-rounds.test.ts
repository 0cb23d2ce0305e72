import { describe, expect, test } from "vitest";
import type { DispatchTarget } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import {
  defaultWatcherBounds,
  type WatcherBounds,
} from "../../../src/cacher/dispatch/watcher-bounds.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import type { EventNode } from "../../../src/cacher/state/event-node.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { WatchScope } from "../../../src/storage/storage.ts";
import type { FakeClock } from "../../fake-clock.ts";
import { WorkClock } from "../../work-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { event } from "../objects.ts";

interface TargetOptions {
  readonly scope?: WatchScope;
  readonly predicate?: Predicate;
  readonly eagerBookmarks?: boolean;
  readonly withPrevious?: boolean;
  /** Called with each batch that it is offered. */
  readonly onOffer?: (batch: WatchBatch) => void;
}

/** A watcher that takes what it is offered, until it is full. */
class TestTarget implements DispatchTarget {
  readonly filter: Filter;
  readonly options: { readonly eagerBookmarks: boolean };
  position = 1;
  readonly offered: WatchBatch[] = [];
  readonly bookmarks: number[] = [];
  stalledAfter: EventNode | undefined;
  notifications = 0;
  capacity = Infinity;
  readonly #onOffer: (batch: WatchBatch) => void;

  constructor(options: TargetOptions = {}) {
    const { scope = { prefix: "" }, predicate, withPrevious = true } = options;
    this.filter = new Filter({ scope, predicate, withPrevious });
    this.options = { eagerBookmarks: options.eagerBookmarks ?? false };
    this.#onOffer = options.onOffer ?? (() => {});
  }

  get revisions(): (number | undefined)[] {
    return this.offered.map(({ revision }) => revision);
  }

  offer(batch: WatchBatch): boolean {
    if (this.offered.length >= this.capacity) return false;
    this.offered.push(batch);
    this.#onOffer(batch);
    return true;
  }

  stall(node: EventNode): void {
    this.stalledAfter = node;
  }

  bookmark(bookmark: WatchBatch): boolean {
    return this.bookmarks.push(bookmark.revision ?? 0) > 0;
  }

  requestBookmark(bookmark: WatchBatch): void {
    this.bookmark(bookmark);
  }

  notify(): void {
    this.notifications++;
  }
}

/** A dispatcher over an empty cache at revision 1. */
class World {
  readonly clock: FakeClock;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly latencies: number[] = [];

  constructor(clock: FakeClock = new WorkClock(), bounds: Partial<WatcherBounds> = {}) {
    this.clock = clock;
    this.cache = new WatchCache(defaultEventWindowBounds, clock);
    this.cache.replace([], 1);
    const all = { ...defaultWatcherBounds, ...bounds };
    this.dispatcher = new Dispatcher(this.cache, clock, all, (ms) => this.latencies.push(ms));
  }

  join(options: TargetOptions = {}): TestTarget {
    const target = new TestTarget(options);
    this.dispatcher.join(target);
    return target;
  }

  /** The cache gets an event of each key, each of its own revision. */
  apply(...keys: readonly string[]): void {
    for (const key of keys) {
      const revision = this.cache.revision + 1;
      this.cache.apply(new WatchBatch(revision, [event("ADDED", key, revision)]));
    }
  }

  /** The cache learns that the store is at `revision`. */
  progress(revision: number): void {
    this.cache.apply(new WatchBatch(revision, []));
  }

  get revisions(): number[] {
    return [this.dispatcher.revision, this.dispatcher.settledRevision];
  }
}

describe("The dispatcher is woken", () => {
  test("for one round, however often", () => {
    const world = new World();
    const { dispatcher, clock } = world;
    const target = world.join();
    world.apply("a");
    for (let i = 0; i < 3; i++) dispatcher.wake();
    expect(clock.pendingImmediates).toBe(1);
    clock.runTurn();
    expect([target.revisions, clock.pendingImmediates]).toEqual([[2], 0]);
  });

  test("by a reader of an offer: for one more round, after this one", () => {
    const world = new World();
    const { dispatcher, clock } = world;
    const target = world.join({
      onOffer: ({ revision = 0 }) => {
        if (revision > 3) return;
        world.apply("b");
        dispatcher.wake();
        expect(clock.pendingImmediates).toBe(0);
        // What it was offered is not settled, as others may not have been offered it.
        expect(dispatcher.settledRevision).toBe(revision - 1);
      },
    });
    world.apply("a");
    dispatcher.wake();
    clock.runTurn();
    expect([target.revisions, clock.pendingImmediates]).toEqual([[2], 1]);
    expect([dispatcher.revision, dispatcher.settledRevision]).toEqual([2, 2]);
    clock.runImmediates();
    expect([target.revisions, clock.pendingImmediates]).toEqual([[2, 3, 4], 0]);
  });

  test("for no round if the store has progressed without an event", () => {
    const world = new World();
    const { dispatcher, clock } = world;
    const target = world.join();
    world.apply("a");
    dispatcher.flush();
    world.progress(15);
    expect(world.revisions).toEqual([2, 2]);
    dispatcher.wake();
    expect(clock.pendingImmediates).toBe(0);
    expect(world.revisions).toEqual([15, 15]);
    expect([target.revisions, dispatcher.bookmark.revision]).toEqual([[2], 15]);
    // Events are behind that until they are offered.
    world.apply("b");
    expect(world.revisions).toEqual([15, 15]);
    dispatcher.flush();
    expect(world.revisions).toEqual([16, 16]);
  });
});

describe("A watcher that joins", () => {
  test("is offered what comes then, in batches that know when their oldest event arrived", () => {
    const world = new World();
    const target = world.join();
    world.clock.advance(100);
    world.apply("a");
    world.clock.advance(50);
    world.apply("b");
    world.dispatcher.flush();
    expect(target.offered.map(({ arrivedAt }) => arrivedAt)).toEqual([100]);
    expect(world.dispatcher.dispatchedBatches).toBe(1);
    expect(world.dispatcher.dispatchedEvents).toBe(2);
    expect(world.latencies).toEqual([50]);
  });

  test("is offered nothing more after it has left", () => {
    const world = new World();
    const [stays, leaves] = [world.join(), world.join({ eagerBookmarks: true })];
    world.apply("a");
    world.dispatcher.flush();
    const bookmarks = [...leaves.bookmarks];
    world.dispatcher.leave(leaves);
    world.dispatcher.leave(leaves);
    world.apply("b");
    world.dispatcher.flush();
    expect([stays.revisions, leaves.revisions]).toEqual([[2, 3], [2]]);
    expect(leaves.bookmarks).toEqual(bookmarks);
  });

  test("stalls when it is full: after the last event of the last batch that it took", () => {
    const world = new World(new WorkClock(), { batchBytes: 1 });
    const target = world.join();
    target.capacity = 2;
    world.apply("a", "b", "c", "d");
    world.dispatcher.flush();
    expect(target.revisions).toEqual([2, 3]);
    expect(target.stalledAfter?.revision).toBe(3);
    // It has left: it is offered nothing, until it joins again.
    target.capacity = Infinity;
    world.apply("e");
    world.dispatcher.flush();
    expect(target.revisions).toEqual([2, 3]);
    world.dispatcher.join(target);
    world.apply("f");
    world.dispatcher.flush();
    expect(target.revisions).toEqual([2, 3, 7]);
  });

  test("that takes no batch of a round stalls after the last one before it", () => {
    const world = new World();
    const target = world.join();
    world.apply("a");
    world.dispatcher.flush();
    target.capacity = 1;
    world.apply("b");
    world.dispatcher.flush();
    expect(target.stalledAfter?.revision).toBe(2);
  });

  test("is notified after the next round if it waits for that, and has not left", () => {
    const world = new World();
    const [waits, leaves] = [world.join(), world.join()];
    for (const each of [waits, leaves]) world.dispatcher.notifyAfterRound(each);
    world.dispatcher.leave(leaves);
    expect(waits.notifications).toBe(0);
    world.apply("a");
    world.dispatcher.flush();
    world.apply("b");
    world.dispatcher.flush();
    expect([waits.notifications, leaves.notifications]).toEqual([1, 0]);
  });
});

describe("A flush", () => {
  test("offers also what arrives meanwhile", () => {
    const world = new World();
    const target = world.join({
      onOffer: ({ revision = 0 }) => {
        if (revision < 5) world.apply("more");
      },
    });
    world.apply("a");
    world.dispatcher.flush();
    expect(target.revisions).toEqual([2, 3, 4, 5]);
    expect(world.revisions).toEqual([5, 5]);
  });

  test("within an offer does nothing: the step of the round has to end first", () => {
    const world = new World();
    const flush = (): void => world.dispatcher.flush();
    const targets = [world.join({ onOffer: flush }), world.join()];
    world.apply("a");
    flush();
    expect(targets.map(({ revisions }) => revisions)).toEqual([[2], [2]]);
  });

  test("without events counts as no round", () => {
    const world = new World();
    for (let i = 0; i < 10_000; i++) world.dispatcher.flush();
    expect(world.latencies).toEqual([]);
    expect(world.dispatcher.bufferBounds().batches).toBe(defaultWatcherBounds.minBufferBatches);
  });
});

test("The buffers of watchers are sized by the events of each round, not by all that were before", () => {
  const world = new World();
  for (let i = 0; i < 1_000; i++) {
    world.apply("k".repeat(200));
    world.dispatcher.flush();
    world.clock.advance(20);
  }
  expect(world.cache.eventWindow.bytes).toBeGreaterThan(defaultWatcherBounds.minBufferBytes);
  expect(world.dispatcher.bufferBounds().bytes).toBe(defaultWatcherBounds.minBufferBytes);
});

test("All watchers share one bookmark, without events, until more is settled", () => {
  const world = new World();
  const { bookmark } = world.dispatcher;
  expect([bookmark.revision, bookmark.events]).toEqual([1, []]);
  expect(world.dispatcher.bookmark).toBe(bookmark);
  world.progress(5);
  world.dispatcher.wake();
  const next = world.dispatcher.bookmark;
  expect([next.revision, next.events]).toEqual([5, []]);
  expect(world.dispatcher.bookmark).toBe(next);
});

describe("A callback for a revision is called", () => {
  test("at once if that is settled, and wakes the dispatcher for that", () => {
    const world = new World();
    const called: number[] = [];
    world.dispatcher.whenSettled(1, () => called.push(1));
    expect(called).toEqual([1]);
    world.progress(3);
    world.dispatcher.whenSettled(3, () => called.push(3));
    expect(called).toEqual([1, 3]);
  });

  test("after the round of that revision, or never after a reset", () => {
    const world = new World();
    const called: number[] = [];
    world.apply("a");
    world.dispatcher.whenSettled(2, () => called.push(2));
    world.dispatcher.whenSettled(3, () => called.push(3));
    expect(called).toEqual([]);
    world.clock.runTurn();
    expect(called).toEqual([2]);
    world.dispatcher.reset();
    world.apply("b");
    world.dispatcher.flush();
    expect(called).toEqual([2]);
  });
});

describe("A reader of several watchers", () => {
  /** Two watchers of each of `readers`, in a world with time slices. */
  function readersOf(readers: number) {
    const clock = new WorkClock();
    const world = new World(clock);
    const read: string[] = [];
    const all = Array.from({ length: readers }, (_, i) => ({
      roundOffered: () => {
        clock.spend(3);
        read.push(`reader ${i}`);
      },
    }));
    for (const [i, reader] of all.entries()) {
      const onOffer = (): void => {
        read.push(`offer ${i}`);
        world.dispatcher.readAfterOffers(reader);
      };
      world.join({ onOffer });
      world.join({ onOffer, scope: { key: "a" } });
    }
    return { world, dispatcher: world.dispatcher, read, all };
  }

  test("reads once in a round, when all watchers were offered its events", () => {
    const { world, read, dispatcher } = readersOf(2);
    world.apply("a");
    dispatcher.flush();
    expect(read.map((each) => each.split(" ")[0])).toEqual([
      ...["offer", "offer", "offer", "offer", "reader", "reader"],
    ]);
    expect(new Set(read.slice(4)).size).toBe(2);
  });

  test("reads in the time slices of the round, which is settled after the last of them", () => {
    const { world, read, dispatcher } = readersOf(5);
    world.apply("a");
    dispatcher.wake();
    const turns: (readonly [read: number, settled: number])[] = [];
    while (world.clock.pendingImmediates > 0) {
      world.clock.runTurn();
      turns.push([read.length - 10, dispatcher.settledRevision]);
    }
    expect(turns).toEqual([
      [2, 1],
      [4, 1],
      [5, 2],
    ]);
  });

  test("reads at once if there is no round", () => {
    const { read, dispatcher, all } = readersOf(1);
    for (const reader of all) dispatcher.readAfterOffers(reader);
    expect(read).toEqual(["reader 0"]);
  });

  test("reads also if a list has ended the round", () => {
    const { world, read, dispatcher } = readersOf(5);
    world.apply("a");
    dispatcher.wake();
    world.clock.runTurn();
    dispatcher.reset();
    world.clock.runImmediates();
    expect(new Set(read.slice(10)).size).toBe(5);
  });
});

describe("A time slice of a round", () => {
  /** Watchers of which each takes `ms` for an offer, and how many had been offered an event after each turn. */
  function turnsOf(watchers: number, ms: number): number[] {
    const clock = new WorkClock();
    const world = new World(clock);
    let offers = 0;
    const onOffer = (): void => {
      offers++;
      clock.spend(ms);
    };
    for (let i = 0; i < watchers; i++) world.join({ onOffer });
    world.apply("a");
    world.dispatcher.wake();
    const turns: number[] = [];
    while (clock.pendingImmediates > 0) {
      clock.runTurn();
      turns.push(offers);
    }
    return turns;
  }

  test("has 64 offers at least", () => {
    expect(turnsOf(200, 1)).toEqual([64, 128, 192, 200]);
  });

  test("has as many as fit into 4 ms", () => {
    expect(turnsOf(400, 0)).toEqual([400]);
    expect(turnsOf(400, 1 / 32)).toEqual([128, 256, 384, 400]);
  });

  test("is not extended by another wake-up", () => {
    const clock = new WorkClock();
    const world = new World(clock);
    for (let i = 0; i < 100; i++) world.join({ onOffer: () => clock.spend(1) });
    world.apply("a");
    world.dispatcher.wake();
    clock.runTurn();
    world.dispatcher.wake();
    expect(clock.pendingImmediates).toBe(1);
  });
});

describe("What a round collects", () => {
  test("is bounded by 50,000 evaluations, those of look-ups and of groups", () => {
    const world = new World(undefined, { batchBytes: Infinity });
    const target = world.join();
    world.join({ withPrevious: false });
    // Each event takes two look-ups, by key and by the prefix of length 0, and two groups.
    world.apply(...Array.from({ length: 13_000 }, (_, i) => `k${i}`));
    world.dispatcher.flush();
    expect(target.offered.map(({ events }) => events.length)).toEqual([12_500, 500]);
  });

  test("is bounded by 4 ms, read from the clock every 512 evaluations", () => {
    const clock = new BusyClock();
    const world = new World(clock);
    const target = world.join({ scope: { key: "a" } });
    // Each event takes one look-up. The clock advances by 1 ms whenever it is read.
    world.apply("a", ...Array.from({ length: 9_999 }, (_, i) => `k${i}`));
    const revisions: number[] = [];
    world.dispatcher.wake();
    for (let turns = 0; turns < 3; turns++) {
      clock.runTurn();
      revisions.push(world.dispatcher.settledRevision - 1);
    }
    expect([target.revisions, revisions]).toEqual([[2_048], [2_047, 4_095, 6_143]]);
  });

  test("has the resume point that the cache has reached meanwhile", () => {
    const world = new World();
    const target = world.join({
      predicate: () => {
        if (world.cache.revision < 9) world.progress(9);
        return true;
      },
    });
    world.apply("a");
    world.dispatcher.flush();
    expect(target.revisions).toEqual([9]);
    expect(world.revisions).toEqual([9, 9]);
  });

  test("has no resume point behind an event that is not part of it", () => {
    const world = new World();
    const target = world.join({
      predicate: () => {
        if (world.cache.revision < 3) {
          world.apply("b");
          world.progress(9);
        }
        return true;
      },
    });
    world.join({ onOffer: () => expect(world.dispatcher.revision).toBe(9) });
    world.apply("a");
    world.dispatcher.flush();
    expect(target.offered.flatMap(({ events }) => events).map(({ revision }) => revision)).toEqual([
      2, 3,
    ]);
    expect(world.revisions).toEqual([9, 9]);
  });
});

test("A reset in the middle of a round ends it: its watchers are gone, and others begin at the newest event", () => {
  const clock = new WorkClock();
  const world = new World(clock);
  let offers = 0;
  const onOffer = (): void => {
    offers++;
    clock.spend(1);
  };
  for (let i = 0; i < 100; i++) world.join({ onOffer });
  world.apply("a");
  world.dispatcher.wake();
  clock.runTurn();
  expect(offers).toBe(64);
  // It joins during the round, which would skip it.
  world.join({ onOffer });
  world.apply("b");
  world.progress(9);
  world.dispatcher.reset();
  expect(world.revisions).toEqual([9, 9]);
  const target = world.join();
  world.apply("c");
  world.dispatcher.wake();
  clock.runImmediates();
  expect([offers, target.revisions]).toEqual([64, [10]]);
});
