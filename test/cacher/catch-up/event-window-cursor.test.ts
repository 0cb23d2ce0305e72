import { describe, expect, it } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { Turns } from "../../../src/base/turns.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
import { EventWindowCursor } from "../../../src/cacher/catch-up/event-window-cursor.ts";
import type {
  CursorOrigin,
  SourceContext,
  SourceReader,
  SourceResult,
} from "../../../src/cacher/catch-up/watch-source.ts";
import type { WatcherState } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import {
  defaultWatcherBounds,
  type WatcherBounds,
} from "../../../src/cacher/dispatch/watcher-bounds.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { event } from "../objects.ts";

/** The watcher of a cursor. It never joins the dispatcher, which would offer it batches. */
class Reader implements SourceReader {
  state: WatcherState = "catching up";
  readonly position = 1;
  readonly filter: Filter;
  readonly options: SourceReader["options"];
  readonly onStep: () => void;
  error: WatchFanoutError | undefined;

  constructor(filter: Filter, owner: object | undefined, onStep: () => void) {
    this.filter = filter;
    this.options = { eagerBookmarks: false, delivery: "EVERY_EVENT", owner };
    this.onStep = onStep;
  }

  fail(error: WatchFanoutError): void {
    this.error = error;
    this.state = "ended";
  }

  step(): boolean {
    this.onStep();
    return false;
  }

  notify(): void {}

  stall(): void {}

  requestBookmark(): void {}

  offer(): boolean {
    return false;
  }

  bookmark(): boolean {
    return false;
  }
}

/** A cache with an event window of 8 events, and cursors that begin before the first event, of revision 2. */
class World {
  readonly cache: WatchCache;
  readonly context: SourceContext;

  constructor(bounds: Partial<WatcherBounds> = {}, clock = new FakeClock()) {
    const cache = new WatchCache(
      { ...defaultEventWindowBounds, minEvents: 0, maxEvents: 8 },
      clock,
    );
    cache.replace([], 1);
    const all = { ...defaultWatcherBounds, ...bounds };
    const dispatcher = new Dispatcher(cache, clock, all);
    dispatcher.reset();
    const turns = new Turns(clock);
    const coalescedBacklogs = new CoalescedBacklogs({
      ...{ clock, cache, dispatcher, turns, chunkCache: new ChunkCache() },
      ...{ chunkBytes: all.batchBytes, maxBytes: all.coalescedBytes },
    });
    this.cache = cache;
    this.context = { bounds: all, cache, dispatcher, coalescedBacklogs, turns };
  }

  begin(
    origin: CursorOrigin,
    request: Partial<CacheWatchRequest> = {},
    onStep: () => void = () => {},
  ) {
    const filter = new Filter({ scope: { prefix: "" }, withPrevious: false, ...request });
    const reader = new Reader(filter, request.owner, onStep);
    const cursor = new EventWindowCursor(
      reader,
      this.context,
      this.cache.eventWindow.newest,
      origin,
    );
    return { reader, cursor };
  }

  /** Writes each of the keys, in a revision of its own. */
  write(...keys: readonly string[]): void {
    for (const key of keys) {
      const revision = this.cache.revision + 1;
      this.cache.apply(new WatchBatch(revision, [event("ADDED", key, revision)]));
    }
    this.context.dispatcher.flush();
  }
}

/** The result in short form: `"a b →3"`, with `done` at the end of the source. */
function short(result: SourceResult | undefined): string | undefined {
  if (result === undefined) return undefined;
  const { batch, isDone } = result;
  const keys = batch?.events.map(({ object }) => object.key) ?? [];
  const point = batch === undefined ? [] : [`→${batch.revision}`];
  return [...keys, ...point, ...(isDone ? ["done"] : [])].join(" ");
}

describe("A cursor in the event window", () => {
  it("leaves out the keys outside of its scope", () => {
    const world = new World();
    const { cursor } = world.begin("resumed", { scope: { prefix: "a" } });
    world.write("a1", "b1", "a2", "b2");
    expect(short(cursor.next())).toBe("a1 a2 →5 done");
  });

  it("gets a resume point for each 3 events that its filter leaves out, if it may scan as many", () => {
    const world = new World({ scanEvents: 3 });
    const { cursor } = world.begin("resumed", { predicate: () => false });
    world.write("a", "b", "c", "d", "e", "f", "g");
    expect([1, 2, 3].map(() => short(cursor.next()))).toEqual(["→4", "→7", "done"]);
  });

  it.each([
    [0, undefined],
    [1, "SLOW_CONSUMER"],
  ])(
    "ends its watcher if %i bytes more are kept for its initial state than are allowed",
    (over, reason) => {
      const keys = Array.from({ length: 9 }, (_, i) => `k${i}`);
      const measured = new World();
      measured.write(...keys);
      const world = new World({
        retainedEventBytes: measured.cache.eventWindow.newest.bytes - over,
      });
      const { reader, cursor } = world.begin("initial");
      world.write(...keys);
      expect(short(cursor.next())).toBe(over > 0 ? undefined : `${keys.join(" ")} →10 done`);
      expect(reader.error?.reason).toBe(reason);
    },
  );

  it("waits for its time slice as one of its owner's watchers", () => {
    const clock = new BusyClock();
    const world = new World({}, clock);
    const served: string[] = [];
    const begin = (name: string, owner: object) =>
      world.begin("resumed", { owner }, () => served.push(name)).cursor;
    const [greedy, modest] = [{}, {}];
    const cursors = [1, 2, 3, 4, 5].map((i) => begin(`greedy-${i}`, greedy));
    cursors.push(begin("modest", modest));
    world.write("a");
    // The clock advances as it is read.
    while (!world.context.turns.isOver);
    expect(cursors.map((cursor) => cursor.next())).toEqual(cursors.map(() => undefined));
    clock.runImmediates();
    expect(served).toHaveLength(6);
    expect(served.indexOf("modest")).toBe(1);
  });
});
