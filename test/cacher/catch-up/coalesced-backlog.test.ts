import { describe, expect, it } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { Turns } from "../../../src/base/turns.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
import { CoalescedBatch } from "../../../src/cacher/catch-up/coalesced-batch.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "../../../src/cacher/dispatch/watcher-bounds.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { BusyClock } from "../busy-clock.ts";
import { event } from "../objects.ts";

const everything = new Filter({ scope: { prefix: "" }, withPrevious: false });

/*
 * Event nodes are compared by ===, since a matcher that fails would print all nodes that they link to.
 */

/** A cache with so many events, on three keys, after the node `begin`. */
function worldWith(
  events: number,
  eventWindow: number = defaultEventWindowBounds.maxEvents,
  maxBytes: number = defaultWatcherBounds.coalescedBytes,
) {
  const clock = new BusyClock();
  const cache = new WatchCache({ ...defaultEventWindowBounds, maxEvents: eventWindow }, clock);
  cache.replace([], 1);
  const dispatcher = new Dispatcher(cache, clock, defaultWatcherBounds);
  dispatcher.reset();
  const turns = new Turns(clock);
  const chunkCache = new ChunkCache();
  const backlogs = new CoalescedBacklogs({
    clock,
    cache,
    dispatcher,
    chunkCache,
    turns,
    chunkBytes: 1_000,
    maxBytes,
  });
  const begin = cache.eventWindow.newest;
  let revision = 1;
  const write = (count: number): void => {
    for (let i = 0; i < count; i++) {
      revision++;
      cache.apply(new WatchBatch(revision, [event("ADDED", `k${revision % 3}`, revision)]));
    }
    dispatcher.flush();
  };
  write(events);
  return { clock, cache, dispatcher, backlogs, begin, write };
}

/** A reader that counts its notifications, and keeps the error that it ended with. */
function reader() {
  return {
    notified: 0,
    notify(): void {
      this.notified++;
    },
    error: undefined as WatchFanoutError | undefined,
    onFail: (): void => {},
    fail(error: WatchFanoutError): void {
      this.error = error;
      this.onFail();
    },
  };
}

describe("The coalesced backlog of a LATEST_STATE watcher", () => {
  it("is coalesced in time slices, and its reader is notified when it is finished", () => {
    const { clock, backlogs, begin } = worldWith(20_000);
    const [one, other] = [reader(), reader()];
    const backlog = backlogs.hold(everything, begin, one);
    backlogs.hold(everything, begin, other);
    expect(backlog.finish(one) === undefined).toBe(true);
    expect(backlog.finish(other) === undefined).toBe(true);
    expect(clock.pendingImmediates).toBe(1);
    clock.runImmediates();
    expect([one.notified, other.notified]).toEqual([1, 1]);
    const finished = backlog.finish(one);
    expect(finished?.batch.events).toHaveLength(3);
    expect(finished?.batch.revision).toBe(20_001);
    expect(backlog.finish(other) === finished).toBe(true);
  });

  it("is coalesced one filter after another", () => {
    const { clock, backlogs, begin } = worldWith(20_000);
    const waiting = Array.from({ length: 20 }, (_, i) => {
      const one = reader();
      const filter = new Filter({ scope: { key: `k${i}` }, withPrevious: false });
      return { one, backlog: backlogs.hold(filter, begin, one) };
    });
    const begun = (): number => waiting.filter(({ backlog }) => backlog.reached !== begin).length;
    const done = (): number => waiting.filter(({ one }) => one.notified > 0).length;
    for (const { backlog, one } of waiting) backlog.finish(one);
    expect(clock.pendingImmediates).toBe(1);
    let turns = 0;
    for (; done() < waiting.length; turns++) {
      expect(begun() - done()).toBeLessThan(2);
      expect(clock.pendingImmediates).toBe(1);
      clock.runTurn();
    }
    expect(turns).toBeGreaterThan(waiting.length);
  });

  it("is coalesced up to the dispatcher's position at the start; later events follow", () => {
    const { clock, dispatcher, backlogs, begin, write } = worldWith(2_000);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    expect(backlog.finish(waiting) === undefined).toBe(true);
    const start = dispatcher.position;
    write(1);
    clock.runImmediates();
    const finished = backlog.finish(waiting);
    expect(finished?.target === start).toBe(true);
    expect(finished?.batch.revision).toBe(2_001);
  });

  it("does not notify a reader that has left, and is not coalesced without a holder", () => {
    const { clock, backlogs, begin, dispatcher } = worldWith(20_000);
    const former = reader();
    const backlog = backlogs.hold(everything, begin, former);
    backlog.finish(former);
    backlog.removeHolder(former);
    clock.runImmediates();
    expect(former.notified).toBe(0);
    expect(backlog.reached === dispatcher.position).toBe(false);
    clock.advance(2_000);
    backlogs.expire();
    expect(backlogs.stats().held).toBe(0);
  });

  it("is shared for a second, and kept while it has a holder", () => {
    const { clock, backlogs, begin } = worldWith(10);
    const [here, there] = [reader(), reader()];
    const one = backlogs.hold(everything, begin, here);
    expect(backlogs.hold(everything, begin, there) === one).toBe(true);
    one.finish(here);
    one.removeHolder(here);
    clock.advance(2_000);
    backlogs.expire();
    expect(backlogs.hold(everything, begin, here) === one).toBe(true);
    one.removeHolder(here);
    one.removeHolder(there);
    backlogs.expire();
    expect(backlogs.hold(everything, begin, here) === one).toBe(false);
  });

  it("is finished again if the last batch is older than a second", () => {
    const { clock, backlogs, begin, write } = worldWith(10);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    const first = backlog.finish(waiting);
    write(1);
    expect(backlog.finish(waiting) === first).toBe(true);
    clock.advance(2_000);
    expect(backlog.finish(waiting)?.batch.revision).toBe(12);
  });

  it("releases events as they are coalesced, in time slices, while a reader waits", () => {
    const { clock, cache, dispatcher, backlogs, begin, write } = worldWith(2_000, 10);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    backlog.catchUp();
    backlog.catchUp();
    expect(cache.eventWindow.covers(backlog.reached)).toBe(false);
    expect(backlog.reached === begin).toBe(false);
    expect(backlog.finish(waiting) === undefined).toBe(true);
    clock.runImmediates();
    expect(waiting.notified).toBe(1);
    expect(backlog.reached === dispatcher.position).toBe(true);
    expect(backlog.objects).toBe(3);
    expect(backlog.finish(waiting)?.batch.revision).toBe(2_001);
    write(5);
    clock.advance(2_000);
    backlog.finish(waiting);
    clock.runImmediates();
    expect(backlog.finish(waiting)?.batch.revision).toBe(2_006);
  });
});

describe("What a backlog delivers", () => {
  it("is shared for exactly a second", () => {
    const { clock, backlogs, begin, write } = worldWith(10);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    // The clock advances by a millisecond each time that it is read.
    const madeAt = (): number | undefined => {
      backlog.finish(waiting);
      return backlog.finish(waiting)?.batch.revision;
    };
    expect(madeAt()).toBe(11);
    write(1);
    clock.advance(900);
    expect(madeAt()).toBe(11);
    clock.advance(101);
    expect(madeAt()).toBe(12);
  });

  it("is made only when a watcher requests it: later events are part of it", () => {
    const { clock, backlogs, begin, write } = worldWith(10);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    backlog.finish(waiting);
    clock.advance(2_000);
    write(1);
    backlog.catchUp();
    clock.runImmediates();
    write(1);
    backlog.finish(waiting);
    clock.runImmediates();
    expect(backlog.finish(waiting)?.batch.revision).toBe(13);
  });

  it("is not made while no watcher has requested it", () => {
    const { clock, backlogs, begin, write } = worldWith(10);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    backlog.catchUp();
    clock.runImmediates();
    write(1);
    expect(backlog.finish(waiting)?.batch.revision).toBe(12);
  });

  it("is atomic", () => {
    const { backlogs, begin } = worldWith(10);
    const waiting = reader();
    const batch = backlogs.hold(everything, begin, waiting).finish(waiting)?.batch;
    expect(batch?.chunk(0)).toMatchObject({ isAtomic: true, revision: 11 });
  });

  it("is announced to a reader once", () => {
    const { clock, backlogs, begin, write } = worldWith(20_000);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    backlog.finish(waiting);
    clock.runImmediates();
    expect(waiting.notified).toBe(1);
    write(1);
    clock.advance(2_000);
    backlog.catchUp();
    clock.runImmediates();
    expect(waiting.notified).toBe(1);
  });

  it("has no entry for an object that was created and deleted, and still moves the resume point", () => {
    const { clock, backlogs, cache, dispatcher, begin } = worldWith(0);
    const [waiting, other] = [reader(), reader()];
    const backlog = backlogs.hold(everything, begin, waiting);
    const elsewhere = new Filter({ scope: { key: "z" }, withPrevious: false });
    const unconcerned = backlogs.hold(elsewhere, begin, other);
    cache.apply(new WatchBatch(2, [event("ADDED", "a", 2), event("ADDED", "b", 2)]));
    cache.apply(new WatchBatch(3, [event("DELETED", "a", 3)]));
    dispatcher.flush();
    const batch = backlog.finish(waiting)?.batch;
    expect(backlog.objects).toBe(1);
    expect(batch?.events.map(({ object }) => object.key)).toEqual(["b"]);
    expect(batch).toMatchObject({ revision: 3, hasChanges: true });
    unconcerned.finish(other);
    clock.runImmediates();
    expect(unconcerned.finish(other)?.batch).toMatchObject({ revision: 3, hasChanges: false });
  });

  it("has to be received after a relist, even if nothing has changed", () => {
    const { backlogs, cache, dispatcher, begin } = worldWith(0);
    const waiting = reader();
    const backlog = backlogs.hold(everything, begin, waiting);
    cache.replace([], 9, "", []);
    dispatcher.reset();
    expect(backlog.finish(waiting)?.batch).toMatchObject({ revision: 9, hasChanges: true });
    expect(backlog.reached === cache.eventWindow.newest).toBe(true);
  });
});

describe("All coalesced backlogs together", () => {
  /** Two readers with backlogs, one of all keys, the other of one key. */
  function two(maxBytes: number) {
    const world = worldWith(30, undefined, maxBytes);
    const { backlogs, begin } = world;
    const held = [everything, new Filter({ scope: { key: "k1" }, withPrevious: false })].map(
      (filter) => {
        const one = reader();
        const backlog = backlogs.hold(filter, begin, one);
        one.onFail = () => backlog.removeHolder(one);
        return { one, backlog };
      },
    );
    return { ...world, held };
  }
  const objectBytes = event("ADDED", "k1", 1).estimatedBytes;

  it.each([
    ["the largest if they exceed their bound", 4 * objectBytes - 1, 1, objectBytes],
    ["no watcher if they do not", 4 * objectBytes, 0, 4 * objectBytes],
    ["all if none of them fits", 0, 2, 0],
  ])("end with SLOW_CONSUMER, naming their size, %s", (_what, maxBytes, ended, left) => {
    const { clock, backlogs, held } = two(maxBytes);
    for (const { backlog } of held) backlog.catchUp();
    clock.runImmediates();
    expect(backlogs.stats()).toMatchObject({ ended, bytes: left });
    const errors = held.flatMap(({ one: { error } }) => error ?? []);
    expect(errors).toHaveLength(ended);
    for (const { reason } of errors) expect(reason).toBe("SLOW_CONSUMER");
    if (ended > 0) expect(errors[0]?.message).toContain(`${3 * objectBytes} bytes`);
  });

  it("keep what has no watcher, to be shared, as long as they are within their bound", () => {
    const { backlogs, begin } = worldWith(3, undefined, 3 * objectBytes);
    const [former, later] = [reader(), reader()];
    const backlog = backlogs.hold(everything, begin, former);
    backlog.finish(former);
    backlog.removeHolder(former);
    backlogs.expire();
    expect(backlogs.stats()).toMatchObject({ held: 1, bytes: 3 * objectBytes });
    expect(backlogs.hold(everything, begin, later) === backlog).toBe(true);
  });

  it("end the watcher of the largest batch in delivery, if the batches alone exceed their bound", () => {
    const { backlogs } = worldWith(0, undefined, 3 * objectBytes);
    const chunkCache = new ChunkCache();
    const deliver = (count: number) => {
      const batch = new CoalescedBatch(9, true, 1_000, chunkCache);
      for (let i = 0; i < count; i++) batch.push(event("ADDED", `k${i}`, i + 2));
      const one = reader();
      backlogs.startDelivery(batch, one);
      one.onFail = () => backlogs.endDelivery(batch, one);
      return one;
    };
    const readers = [1, 2, 1].map(deliver);
    backlogs.expire();
    expect(readers.map(({ error }) => error?.reason)).toEqual([
      undefined,
      "SLOW_CONSUMER",
      undefined,
    ]);
    expect(backlogs.stats()).toMatchObject({ held: 2, bytes: 2 * objectBytes, ended: 1 });
  });

  it("drop what is kept only to be shared before they end a watcher", () => {
    const { clock, backlogs, begin, held } = two(4 * objectBytes);
    for (const { backlog, one } of held) {
      backlog.finish(one);
      clock.runImmediates();
    }
    held[0]?.backlog.removeHolder(held[0].one);
    expect(backlogs.stats()).toMatchObject({ held: 2, bytes: 4 * objectBytes });
    const other = reader();
    backlogs
      .hold(new Filter({ scope: { key: "k2" }, withPrevious: false }), begin, other)
      .catchUp();
    clock.runImmediates();
    expect(backlogs.stats()).toMatchObject({ held: 2, bytes: 2 * objectBytes, ended: 0 });
    expect([...held.map(({ one }) => one), other].map(({ error }) => error)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("count the events that the event window dropped and that are still to be coalesced", () => {
    const { backlogs, cache, begin, write } = worldWith(0, 10);
    const one = reader();
    backlogs.hold(everything, begin, one);
    write(10);
    expect(backlogs.stats().bytes).toBe(0);
    write(5);
    expect(backlogs.stats().bytes).toBe(cache.eventWindow.floor.bytes);
    expect(cache.eventWindow.floor.bytes).toBeGreaterThan(0);
  });

  it("count a batch once while it is being delivered to any of its watchers", () => {
    const { backlogs, begin } = worldWith(3);
    const [one, other] = [reader(), reader()];
    const backlog = backlogs.hold(everything, begin, one);
    const batch = backlog.finish(one)?.batch;
    if (batch === undefined) throw new Error("expected a batch");
    backlogs.endDelivery(batch, one);
    backlogs.startDelivery(batch, one);
    backlogs.startDelivery(batch, other);
    const inBacklog = { held: 1, objects: 3, bytes: 3 * objectBytes };
    const both = { held: 2, objects: 6, bytes: 6 * objectBytes, delivered: 2 };
    expect(backlogs.stats()).toMatchObject(both);
    backlogs.endDelivery(batch, one);
    backlogs.endDelivery(batch, one);
    expect(backlogs.stats()).toMatchObject(both);
    backlogs.endDelivery(batch, other);
    expect(backlogs.stats()).toMatchObject({ ...inBacklog, delivered: 2 });
  });

  it("end all watchers of the largest batch in delivery, if that is larger than any backlog", () => {
    const { clock, backlogs, begin } = worldWith(3, undefined, 5 * objectBytes);
    const [one, other, small] = [reader(), reader(), reader()];
    const backlog = backlogs.hold(everything, begin, one);
    const batch = backlog.finish(one)?.batch;
    if (batch === undefined) throw new Error("expected a batch");
    backlog.removeHolder(one);
    for (const each of [one, other]) {
      backlogs.startDelivery(batch, each);
      each.onFail = () => backlogs.endDelivery(batch, each);
    }
    for (const key of ["k0", "k1", "k2"]) {
      const filter = new Filter({ scope: { key }, withPrevious: false });
      backlogs.hold(filter, begin, small).catchUp();
      clock.runImmediates();
    }
    expect([one, other, small].map(({ error }) => error?.reason)).toEqual([
      "SLOW_CONSUMER",
      "SLOW_CONSUMER",
      undefined,
    ]);
    expect(backlogs.stats()).toMatchObject({ held: 3, bytes: 3 * objectBytes, ended: 2 });
  });

  it("drop one that no watcher needs, before they end a watcher whose own is larger", () => {
    const { clock, backlogs, begin } = worldWith(3, undefined, 3 * objectBytes);
    const [former, one] = [reader(), reader()];
    const k1 = new Filter({ scope: { key: "k1" }, withPrevious: false });
    const unneeded = backlogs.hold(k1, begin, former);
    unneeded.finish(former);
    unneeded.removeHolder(former);
    backlogs.hold(everything, begin, one).catchUp();
    clock.runImmediates();
    expect(one.error).toBeUndefined();
    expect(backlogs.stats()).toMatchObject({ held: 1, bytes: 3 * objectBytes, ended: 0 });
  });

  it("end the watcher that keeps the most events beyond the event window, when they are tidied", () => {
    const { backlogs, begin, cache, write } = worldWith(0, 4, 20 * objectBytes);
    const [behind, late] = [reader(), reader()];
    const first = backlogs.hold(
      new Filter({ scope: { key: "x" }, withPrevious: false }),
      begin,
      behind,
    );
    behind.onFail = () => first.removeHolder(behind);
    write(9);
    const second = backlogs.hold(everything, cache.eventWindow.floor, late);
    late.onFail = () => second.removeHolder(late);
    backlogs.expire();
    expect([behind.error, late.error]).toEqual([undefined, undefined]);
    write(9);
    backlogs.expire();
    expect([behind.error?.reason, late.error?.reason]).toEqual(["SLOW_CONSUMER", undefined]);
    late.onFail();
    expect(backlogs.stats().bytes).toBe(0);
  });

  it("are dropped together, and no longer coalesced, at another history", () => {
    const { clock, backlogs, begin } = worldWith(20_000);
    const waiting = reader();
    backlogs.hold(everything, begin, waiting).finish(waiting);
    backlogs.clear();
    expect(backlogs.stats()).toMatchObject({ held: 0, objects: 0, bytes: 0 });
    clock.runImmediates();
    expect(waiting.notified).toBe(0);
  });
});
