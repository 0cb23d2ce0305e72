import { describe, expect, it } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { TimeSliceQueue } from "../../../src/base/time-slice-queue.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
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
 * Nodes of history are compared by ===, as a matcher that fails would print all that they lead to.
 */

/** Somebody behind with so many events, all of them of one of three keys. */
function behindWith(
  events: number,
  eventWindow: number = defaultEventWindowBounds.maxEvents,
  maxBytes: number = defaultWatcherBounds.coalescedBytes,
) {
  const clock = new BusyClock();
  const cache = new WatchCache({ ...defaultEventWindowBounds, maxEvents: eventWindow }, clock);
  cache.replace([], 1);
  const dispatcher = new Dispatcher(cache, clock, defaultWatcherBounds);
  dispatcher.reset();
  const timeSlices = new TimeSliceQueue(clock);
  const chunkCache = new ChunkCache();
  const folds = new CoalescedBacklogs({
    clock,
    cache,
    dispatcher,
    chunkCache,
    timeSlices,
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
  return { clock, cache, dispatcher, folds, begin, write };
}

/** A reader, how often it was poked, and why it was ended. */
function reader() {
  return {
    poked: 0,
    notify(): void {
      this.poked++;
    },
    error: undefined as WatchFanoutError | undefined,
    onFail: (): void => {},
    fail(error: WatchFanoutError): void {
      this.error = error;
      this.onFail();
    },
  };
}

describe("What a LATEST_STATE watcher is behind with", () => {
  it("is folded in slices where it is much: its reader is told when that is done", () => {
    const { clock, folds, begin } = behindWith(20_000);
    const [one, other] = [reader(), reader()];
    const backlog = folds.hold(everything, begin, one);
    folds.hold(everything, begin, other);
    expect(backlog.finish(one) === undefined).toBe(true);
    expect(backlog.finish(other) === undefined).toBe(true);
    expect(clock.pendingImmediates).toBe(1);
    clock.runImmediates();
    expect([one.poked, other.poked]).toEqual([1, 1]);
    const finished = backlog.finish(one);
    expect(finished?.batch.events).toHaveLength(3);
    expect(finished?.batch.revision).toBe(20_001);
    expect(backlog.finish(other) === finished).toBe(true);
  });

  it("is folded one after another, however many filters there are: others wait for their turn", () => {
    const { clock, folds, begin } = behindWith(20_000);
    const waiting = Array.from({ length: 20 }, (_, i) => {
      const one = reader();
      const filter = new Filter({ scope: { key: `k${i}` }, withPrevious: false });
      return { one, backlog: folds.hold(filter, begin, one) };
    });
    const begun = (): number => waiting.filter(({ backlog }) => backlog.reached !== begin).length;
    const done = (): number => waiting.filter(({ one }) => one.poked > 0).length;
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

  it("is folded up to where the dispatcher was when that began; what came meanwhile follows", () => {
    const { clock, dispatcher, folds, begin, write } = behindWith(2_000);
    const waiting = reader();
    const backlog = folds.hold(everything, begin, waiting);
    expect(backlog.finish(waiting) === undefined).toBe(true);
    const level = dispatcher.position;
    write(1);
    clock.runImmediates();
    const finished = backlog.finish(waiting);
    expect(finished?.target === level).toBe(true);
    expect(finished?.batch.revision).toBe(2_001);
  });

  it("tells nobody who has left, and is not folded for nobody", () => {
    const { clock, folds, begin, dispatcher } = behindWith(20_000);
    const gone = reader();
    const backlog = folds.hold(everything, begin, gone);
    backlog.finish(gone);
    backlog.removeHolder(gone);
    clock.runImmediates();
    expect(gone.poked).toBe(0);
    expect(backlog.reached === dispatcher.position).toBe(false);
    clock.advance(2_000);
    folds.expire();
    expect(folds.stats().held).toBe(0);
  });

  it("is kept for those who come a moment later, and for as long as anybody needs it", () => {
    const { clock, folds, begin } = behindWith(10);
    const [here, there] = [reader(), reader()];
    const one = folds.hold(everything, begin, here);
    expect(folds.hold(everything, begin, there) === one).toBe(true);
    one.finish(here);
    one.removeHolder(here);
    clock.advance(2_000);
    folds.expire();
    expect(folds.hold(everything, begin, here) === one).toBe(true);
    one.removeHolder(here);
    one.removeHolder(there);
    folds.expire();
    expect(folds.hold(everything, begin, here) === one).toBe(false);
  });

  it("is made anew where the last one is older than a second", () => {
    const { clock, folds, begin, write } = behindWith(10);
    const waiting = reader();
    const backlog = folds.hold(everything, begin, waiting);
    const first = backlog.finish(waiting);
    write(1);
    expect(backlog.finish(waiting) === first).toBe(true);
    clock.advance(2_000);
    expect(backlog.finish(waiting)?.batch.revision).toBe(12);
  });

  it("lets go of history as that is folded, in slices, and a reader waits for it", () => {
    const { clock, cache, dispatcher, folds, begin, write } = behindWith(2_000, 10);
    const waiting = reader();
    const backlog = folds.hold(everything, begin, waiting);
    backlog.catchUp();
    backlog.catchUp();
    expect(cache.eventWindow.covers(backlog.reached)).toBe(false);
    expect(backlog.reached === begin).toBe(false);
    expect(backlog.finish(waiting) === undefined).toBe(true);
    clock.runImmediates();
    expect(waiting.poked).toBe(1);
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

describe("All folds together", () => {
  /** Two who are behind, the one with what begins with k, the other with one key of it. */
  function two(maxBytes: number) {
    const behind = behindWith(30, undefined, maxBytes);
    const { folds, begin } = behind;
    const held = [everything, new Filter({ scope: { key: "k1" }, withPrevious: false })].map(
      (filter) => {
        const one = reader();
        const backlog = folds.hold(filter, begin, one);
        one.onFail = () => backlog.removeHolder(one);
        return { one, backlog };
      },
    );
    return { ...behind, held };
  }
  const objectBytes = event("ADDED", "k1", 1).estimatedBytes;

  it.each([
    ["the largest, where they take more than they may", 4 * objectBytes - 1, 1, objectBytes],
    ["nobody, where they do not", 4 * objectBytes, 0, 4 * objectBytes],
    ["all, where none of them fits", 0, 2, 0],
  ])("end as SLOW_CONSUMER, with what they took, %s", (_what, maxBytes, ended, left) => {
    const { clock, folds, held } = two(maxBytes);
    for (const { backlog } of held) backlog.catchUp();
    clock.runImmediates();
    expect(folds.stats()).toMatchObject({ ended, bytes: left });
    const errors = held.flatMap(({ one: { error } }) => error ?? []);
    expect(errors).toHaveLength(ended);
    for (const { reason } of errors) expect(reason).toBe("SLOW_CONSUMER");
    if (ended > 0) expect(errors[0]?.message).toContain(`${3 * objectBytes} bytes`);
  });

  it("give up what is only kept to be shared before they end anyone", () => {
    const { clock, folds, begin, held } = two(4 * objectBytes);
    for (const { backlog, one } of held) {
      backlog.finish(one);
      clock.runImmediates();
    }
    held[0]?.backlog.removeHolder(held[0].one);
    expect(folds.stats()).toMatchObject({ held: 2, bytes: 4 * objectBytes });
    const other = reader();
    folds.hold(new Filter({ scope: { key: "k2" }, withPrevious: false }), begin, other).catchUp();
    clock.runImmediates();
    expect(folds.stats()).toMatchObject({ held: 2, bytes: 2 * objectBytes, ended: 0 });
    expect([...held.map(({ one }) => one), other].map(({ error }) => error)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("count what history has let go of and is still to be folded", () => {
    const { folds, cache, begin, write } = behindWith(0, 10);
    const one = reader();
    folds.hold(everything, begin, one);
    write(10);
    expect(folds.stats().bytes).toBe(0);
    write(5);
    expect(folds.stats().bytes).toBe(cache.eventWindow.floor.bytes);
    expect(cache.eventWindow.floor.bytes).toBeGreaterThan(0);
  });
});
