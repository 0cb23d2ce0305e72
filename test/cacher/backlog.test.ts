import { describe, expect, it } from "vitest";
import { Dispatcher } from "../../src/cacher/dispatcher.ts";
import { Filter } from "../../src/cacher/filter.ts";
import { Folds } from "../../src/cacher/folds.ts";
import { defaultHistoryBounds } from "../../src/cacher/history.ts";
import { KeptPieces } from "../../src/cacher/kept-pieces.ts";
import { WatchCache } from "../../src/cacher/watch-cache.ts";
import { defaultWatcherBounds } from "../../src/cacher/watcher-terms.ts";
import { WatchBatch } from "../../src/storage/event.ts";
import { FakeClock } from "../fake-clock.ts";
import { event } from "./objects.ts";

/** Time passes as it is looked at: each look costs a millisecond. */
class BusyClock extends FakeClock {
  #looks = 0;

  override now(): number {
    return super.now() + this.#looks++;
  }
}

const everything = new Filter({ scope: { prefix: "" }, withPrevious: false });

/*
 * Nodes of history are compared by ===, as a matcher that fails would print all that they lead to.
 */

/** Somebody behind with so many events, all of them of one of three keys. */
function behindWith(events: number, history: number = defaultHistoryBounds.maxEvents) {
  const clock = new BusyClock();
  const cache = new WatchCache({ ...defaultHistoryBounds, maxEvents: history }, clock);
  cache.replace([], 1);
  const dispatcher = new Dispatcher(cache, clock, defaultWatcherBounds);
  dispatcher.reset();
  const folds = new Folds({ clock, dispatcher, kept: new KeptPieces(), pieceBytes: 1_000 });
  const begin = cache.history.newest;
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

/** A reader, and how often it was poked. */
function reader() {
  return {
    poked: 0,
    poke(): void {
      this.poked++;
    },
  };
}

describe("What a LATEST_STATE watcher is behind with", () => {
  it("is folded in slices where it is much: its reader is told when that is done", () => {
    const { clock, folds, begin } = behindWith(20_000);
    const backlog = folds.hold(everything, begin);
    const [one, other] = [reader(), reader()];
    expect(backlog.finish(one) === undefined).toBe(true);
    expect(backlog.finish(other) === undefined).toBe(true);
    expect(clock.pendingImmediates).toBe(1);
    clock.runImmediates();
    expect([one.poked, other.poked]).toEqual([1, 1]);
    const finished = backlog.finish(one);
    expect(finished?.unit.events).toHaveLength(3);
    expect(finished?.unit.revision).toBe(20_001);
    expect(backlog.finish(other) === finished).toBe(true);
  });

  it("is folded up to where the dispatcher was when that began; what came meanwhile follows", () => {
    const { clock, dispatcher, folds, begin, write } = behindWith(2_000);
    const backlog = folds.hold(everything, begin);
    const waiting = reader();
    expect(backlog.finish(waiting) === undefined).toBe(true);
    const level = dispatcher.position;
    write(1);
    clock.runImmediates();
    const finished = backlog.finish(waiting);
    expect(finished?.level === level).toBe(true);
    expect(finished?.unit.revision).toBe(2_001);
  });

  it("tells nobody who has left", () => {
    const { clock, folds, begin } = behindWith(20_000);
    const backlog = folds.hold(everything, begin);
    const gone = reader();
    backlog.finish(gone);
    backlog.leave(gone);
    folds.release(backlog);
    clock.runImmediates();
    expect(gone.poked).toBe(0);
    clock.advance(2_000);
    folds.expire();
    expect(folds.stats().held).toBe(0);
  });

  it("is kept for those who come a moment later, and for as long as anybody needs it", () => {
    const { clock, folds, begin } = behindWith(10);
    const [one, other] = [folds.hold(everything, begin), folds.hold(everything, begin)];
    expect(one === other).toBe(true);
    one.finish(reader());
    folds.release(one);
    clock.advance(2_000);
    folds.expire();
    expect(folds.hold(everything, begin) === one).toBe(true);
    folds.release(one);
    folds.release(one);
    folds.expire();
    expect(folds.hold(everything, begin) === one).toBe(false);
  });

  it("is made anew where the last one is older than a second", () => {
    const { clock, folds, begin, write } = behindWith(10);
    const backlog = folds.hold(everything, begin);
    const first = backlog.finish(reader());
    write(1);
    expect(backlog.finish(reader()) === first).toBe(true);
    clock.advance(2_000);
    expect(backlog.finish(reader())?.unit.revision).toBe(12);
  });

  it("lets go of history as that is folded, in slices, once at a time", () => {
    const { cache, dispatcher, folds, begin, write } = behindWith(2_000, 10);
    const backlog = folds.hold(everything, begin);
    const steps = backlog.catchUp();
    expect(steps.next().done).toBe(false);
    expect(cache.history.holdsAfter(backlog.reached)).toBe(false);
    // Whoever else walks by leaves it alone, and a reader waits.
    expect(backlog.catchUp().next().done).toBe(true);
    const waiting = reader();
    expect(backlog.finish(waiting) === undefined).toBe(true);
    for (const _ of steps) expect(waiting.poked).toBeLessThan(2);
    expect(waiting.poked).toBe(1);
    expect(backlog.reached === dispatcher.position).toBe(true);
    expect(backlog.objects).toBe(3);
    write(5);
    expect(backlog.finish(waiting)?.unit.revision).toBe(2_006);
  });
});
