import { describe, expect, test } from "vitest";
import { revisionTooOld, WatchFanoutError } from "../../../src/base/errors.ts";
import type { SourceResult, WatchSource } from "../../../src/cacher/catch-up/watch-source.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import type { WatcherContext, WatcherOptions } from "../../../src/cacher/watch/cache-watcher.ts";
import { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { WatchScope } from "../../../src/storage/storage.ts";
import { event } from "../objects.ts";

function batch(revision: number): WatchBatch {
  return new WatchBatch(revision, [event("MODIFIED", "a", revision)]);
}

function bookmark(revision: number): WatchBatch {
  return new WatchBatch(revision, []);
}

/** A source that returns these results, then nothing. */
class TestSource implements WatchSource {
  state: WatchSource["state"] = "catching up";
  readonly successor: WatchSource | undefined;
  readonly results: SourceResult[];
  drops = 0;
  checks = 0;

  constructor(results: readonly SourceResult[] = [], successor?: WatchSource) {
    this.results = [...results];
    this.successor = successor;
  }

  next(): SourceResult | undefined {
    return this.results.shift();
  }

  checkWindow(): void {
    this.checks++;
  }

  drop(): void {
    this.drops++;
  }
}

const done: SourceResult = { batch: undefined, isDone: true };
const bounds = { batches: 10, bytes: 10_000 };

/** A watcher, with a dispatcher and a cache of which the test sets the revisions. */
class World {
  readonly dispatcher = {
    revision: 1,
    settledRevision: 1,
    get bookmark() {
      return bookmark(this.settledRevision);
    },
    join: () => this.log.push("joined"),
    bufferBounds: () => bounds,
  };
  readonly cache = { revision: 1 };
  /** What it did, and when it notified its client. */
  readonly log: string[] = [];
  readonly latencies: number[] = [];
  readonly watcher: CacheWatcher;

  constructor(
    source: WatchSource = new TestSource([done]),
    options: Partial<WatcherOptions> = {},
    scope: WatchScope = { prefix: "" },
  ) {
    const context = {
      ...{ dispatcher: this.dispatcher, cache: this.cache },
      deliveryLatency: { reached: (arrivedAt: number) => this.latencies.push(arrivedAt) },
      forget: (_: CacheWatcher, end: Error | null) => this.log.push(`ended: ${end?.message}`),
      toStreamError: (error: Error) => new WatchFanoutError("INTERNAL", error.message),
    } as unknown as WatcherContext;
    const filter = new Filter({ scope, withPrevious: false });
    const all = { eagerBookmarks: false, ...options } as WatcherOptions;
    this.watcher = new CacheWatcher(filter, all, context, source, 0);
    this.watcher.onReadable(() => this.log.push("notified"));
  }

  /** One that is live, and has nothing to read. */
  static live(options: Partial<WatcherOptions> = {}): World {
    const world = new World(undefined, options);
    world.watcher.read();
    expect(world.watcher.state).toBe("live");
    world.log.length = 0;
    return world;
  }

  read(): number | undefined {
    return this.watcher.read()?.revision;
  }
}

describe("The status of a watch", () => {
  test.each<WatchScope>([{ key: "a" }, { prefix: "a" }, { from: "a", to: "b" }])(
    "has its scope: %o",
    (scope) => {
      const { watcher } = new World(undefined, {}, scope);
      expect(watcher.status.scope).toEqual(scope);
      expect(watcher.status.selectors).toEqual({ label: "", field: "" });
    },
  );

  test("has no lag before anything was sent, then that of the resume point behind the cache", () => {
    const world = new World(new TestSource([{ batch: batch(5), isDone: false }]));
    const { watcher, cache } = world;
    cache.revision = 12;
    expect(watcher.lagRevisions).toBeUndefined();
    world.read();
    expect(watcher.lagRevisions).toBe(7);
    // The cache was filled from another history.
    cache.revision = 3;
    expect(watcher.lagRevisions).toBe(0);
  });

  test("has no lag in revisions that its live watcher has no events of", () => {
    const { watcher, cache, dispatcher } = World.live();
    cache.revision = 12;
    dispatcher.settledRevision = 11;
    expect(watcher.lagRevisions).toBe(1);
    watcher.offer(batch(4), bounds);
    expect(watcher.lagRevisions).toBe(8);
  });

  test("has the fill of its buffer, by batches or bytes, and the bytes", () => {
    const { watcher } = World.live();
    const { estimatedBytes } = batch(2);
    expect([watcher.bufferFill, watcher.heldBytes]).toEqual([0, 0]);
    watcher.offer(batch(2), bounds);
    expect([watcher.bufferFill, watcher.heldBytes]).toEqual([0.1, estimatedBytes]);
    const large = new WatchBatch(3, [event("ADDED", "a", 3, "x".repeat(5_000))]);
    watcher.offer(large, bounds);
    expect(watcher.bufferFill).toBe((estimatedBytes + large.estimatedBytes) / bounds.bytes);
    watcher.open(large);
    expect(watcher.bufferFill).toBe(1);
  });
});

describe("A watch has something pending", () => {
  test("while its buffer is not empty", () => {
    const { watcher } = World.live();
    expect(watcher.hasPending).toBe(false);
    watcher.offer(batch(2), bounds);
    expect(watcher.hasPending).toBe(true);
    watcher.read();
    expect(watcher.hasPending).toBe(false);
  });

  test("when its first source is known, until its client has read that", () => {
    const source = new TestSource([{ batch: batch(5), isDone: false }]);
    source.state = "starting";
    const { watcher } = new World(source);
    expect(watcher.hasPending).toBe(false);
    source.state = "initial";
    expect(watcher.hasPending).toBe(true);
    watcher.read();
    // It has not read to the end.
    expect(watcher.hasPending).toBe(true);
    watcher.read();
    expect(watcher.hasPending).toBe(false);
    watcher.notify();
    expect(watcher.hasPending).toBe(true);
  });
});

describe("What a client takes", () => {
  test("counts when it is read, and when it is accepted", () => {
    const { watcher } = World.live();
    expect(watcher.consumed).toBe(0);
    watcher.offer(batch(2), bounds);
    watcher.read();
    watcher.accepted();
    watcher.read();
    expect(watcher.consumed).toBe(2);
  });

  test("is notified once for all that comes before it reads", () => {
    const { watcher, log } = World.live();
    watcher.offer(batch(2), bounds);
    watcher.offer(batch(3), bounds);
    watcher.notify();
    expect(log).toEqual(["notified"]);
    watcher.read();
    watcher.offer(batch(4), bounds);
    expect(log).toEqual(["notified"]);
    for (let i = 0; i < 3; i++) watcher.read();
    watcher.offer(batch(5), bounds);
    expect(log).toEqual(["notified", "notified"]);
  });

  test("is not notified of what comes while it reads", () => {
    const source = new TestSource();
    const world = new World(source);
    source.next = () => {
      world.watcher.notify();
      return undefined;
    };
    world.read();
    expect(world.log).toEqual([]);
  });

  test("is timed by the arrival of its events", () => {
    const { watcher, latencies } = World.live();
    watcher.offer(batch(2).arrived(7), bounds);
    watcher.offer(batch(3), bounds);
    watcher.read();
    watcher.read();
    expect(latencies).toEqual([7]);
  });
});

describe("The sources of a watch", () => {
  test("are read one after the other, and dropped when they are done; then it is live", () => {
    const last = new TestSource([{ batch: batch(4), isDone: true }]);
    const middle = new TestSource([{ batch: batch(3), isDone: true }], last);
    const first = new TestSource([{ batch: batch(2), isDone: false }, done], middle);
    const world = new World(first);
    world.watcher.checkWindow();
    expect([first.checks, middle.checks, last.checks]).toEqual([1, 1, 1]);
    expect([world.read(), first.drops]).toEqual([2, 0]);
    expect([world.read(), first.drops, middle.drops]).toEqual([3, 1, 1]);
    expect([world.read(), last.drops, world.watcher.state]).toEqual([4, 1, "live"]);
    expect(world.log).toEqual(["joined"]);
  });

  test("are all dropped when it ends, and not read any more", () => {
    const last = new TestSource();
    const first = new TestSource([{ batch: batch(2), isDone: false }], last);
    const world = new World(first);
    world.watcher.close();
    expect([world.read(), first.drops, last.drops]).toEqual([undefined, 1, 1]);
  });

  test("move its resume point with each batch that has one", () => {
    const chunk = new WatchBatch(undefined, [event("ADDED", "a", 1)]);
    const world = new World(
      new TestSource([
        { batch: batch(2), isDone: false },
        { batch: chunk, isDone: false },
      ]),
    );
    world.watcher.read();
    world.watcher.read();
    expect(world.watcher.position).toBe(2);
  });

  test("notify it when its turn to catch up comes; the source asks for the next turn", () => {
    const { watcher, log } = new World();
    expect([watcher.step(), log]).toEqual([false, ["notified"]]);
  });
});

describe("A bookmark", () => {
  test("is not for a watch that is not live, nor one that is ahead of it", () => {
    const source = new TestSource([{ batch: batch(5), isDone: false }, done]);
    const world = new World(source);
    const { watcher } = world;
    expect(watcher.bookmark(bookmark(9), bounds)).toBe(false);
    world.read();
    world.read();
    expect(watcher.bookmark(bookmark(4), bounds)).toBe(false);
    expect(watcher.bookmark(new WatchBatch(undefined, []), bounds)).toBe(false);
    expect(watcher.bookmark(bookmark(5), bounds)).toBe(true);
    expect([world.read(), world.read()]).toEqual([5, undefined]);
    watcher.close();
    expect(watcher.bookmark(bookmark(9), bounds)).toBe(false);
  });

  test("replaces one that was not read, also in a full buffer", () => {
    const world = World.live();
    const { watcher } = world;
    const full = { ...bounds, batches: 2 };
    watcher.offer(batch(2), full);
    expect(watcher.bookmark(bookmark(3), full)).toBe(true);
    expect(watcher.bookmark(bookmark(4), full)).toBe(true);
    expect(watcher.position).toBe(4);
    expect([world.read(), world.read(), world.read()]).toEqual([2, 4, undefined]);
  });

  test("that was requested while the buffer was full is the last settled revision when that was read", () => {
    const world = World.live();
    const { watcher, dispatcher } = world;
    const full = { ...bounds, batches: 1 };
    watcher.offer(batch(2), full);
    watcher.requestBookmark(bookmark(2), full);
    dispatcher.settledRevision = 2;
    expect([world.read(), world.read(), world.read()]).toEqual([2, 2, undefined]);
    // One that was sent is not requested any more.
    watcher.requestBookmark(bookmark(3), full);
    expect([world.read(), world.read()]).toEqual([3, undefined]);
  });

  test("is not sent late if the watch is ahead of it", () => {
    const world = World.live();
    const { watcher, dispatcher } = world;
    watcher.offer(batch(3), bounds);
    watcher.requestBookmark(bookmark(2), bounds);
    dispatcher.settledRevision = 2;
    expect([world.read(), world.read()]).toEqual([3, undefined]);
    dispatcher.settledRevision = 4;
    expect(world.read()).toBeUndefined();
  });
});

describe("A watch that becomes live", () => {
  /** Its batches, if its source ends with `last` while the dispatcher is at 5. */
  function readsOf(
    options: Partial<WatcherOptions>,
    last: number | undefined,
    isRequested = false,
  ) {
    const results: SourceResult[] =
      last === undefined ? [done] : [{ batch: batch(last), isDone: true }];
    const world = new World(
      new TestSource([{ batch: batch(4), isDone: false }, ...results]),
      options,
    );
    world.dispatcher.revision = 5;
    world.dispatcher.settledRevision = 6;
    if (isRequested) world.watcher.requestBookmark(bookmark(5), bounds);
    const reads: (number | undefined)[] = [];
    for (let i = 0; i < 5; i++) reads.push(world.read());
    return reads.filter((revision) => revision !== undefined);
  }

  test.each<[string, Partial<WatcherOptions>, number | undefined, boolean, number[]]>([
    ["sends no bookmark unless it was asked for", {}, undefined, false, [4]],
    ["sends the dispatcher's revision if a bookmark was requested", {}, undefined, true, [4, 5]],
    ["sends it if it is eager", { eagerBookmarks: true }, undefined, false, [4, 5]],
    ["sends no bookmark behind a last batch at that revision", {}, 5, true, [4, 5]],
    ["nor if it is eager", { eagerBookmarks: true }, 5, false, [4, 5]],
    ["sends a settled one behind an older last batch if it was requested", {}, 4, true, [4, 4, 6]],
    ["and if it is eager", { eagerBookmarks: true }, 4, false, [4, 4, 6]],
    ["but not if it was not asked for", {}, 4, false, [4, 4]],
  ])("%s", (_, options, last, isRequested, revisions) => {
    expect(readsOf(options, last, isRequested)).toEqual(revisions);
  });

  test.each([true, false])(
    "at its own resume point repeats that only on request; eager: %s",
    (eagerBookmarks) => {
      const source = () => new TestSource([{ batch: batch(4), isDone: false }, done]);
      const world = new World(source(), { eagerBookmarks });
      world.dispatcher.revision = 4;
      expect([world.read(), world.read()]).toEqual([4, undefined]);
      const requested = new World(source(), { eagerBookmarks });
      requested.dispatcher.revision = 4;
      requested.watcher.requestBookmark(bookmark(4), bounds);
      expect([requested.read(), requested.read(), requested.read()]).toEqual([4, 4, undefined]);
      // A watch that is ahead of the dispatcher, as after an initial state of the storage.
      const ahead = new World(source(), { eagerBookmarks });
      ahead.dispatcher.revision = 3;
      ahead.watcher.requestBookmark(bookmark(3), bounds);
      expect([ahead.read(), ahead.read()]).toEqual([4, undefined]);
    },
  );
});

describe("The end of a watch", () => {
  test("is the first one, which its client learns of when it has read the buffer", () => {
    const world = World.live();
    const { watcher, log } = world;
    watcher.offer(batch(2), bounds);
    watcher.fail(new Error("first"));
    watcher.fail(new Error("second"));
    watcher.endSilently(revisionTooOld(1, 2));
    expect(log).toEqual(["notified", "ended: first"]);
    expect([watcher.state, watcher.ended]).toEqual(["ended", undefined]);
    expect(world.read()).toBe(2);
    expect(watcher.ended).toMatchObject({ message: "first", reason: "INTERNAL" });
  });

  test("notifies a client that has read all", () => {
    const { watcher, log } = World.live();
    watcher.fail(new Error("broken"));
    expect(log).toEqual(["ended: broken", "notified"]);
  });

  test("that discards the buffer notifies also a client that is blocked on its last batch", () => {
    const { watcher, log } = World.live();
    watcher.offer(batch(2), bounds);
    watcher.offer(batch(3), bounds);
    watcher.read();
    watcher.endAndDiscard(new WatchFanoutError("SLOW_CONSUMER", "slow"));
    expect(log).toEqual(["notified", "ended: slow", "notified"]);
    expect([watcher.read(), watcher.ended]).toMatchObject([undefined, { message: "slow" }]);
  });

  test("is learned of later if it is silent", () => {
    const { watcher, log } = World.live();
    watcher.endSilently(new WatchFanoutError("DRAINING", "later"));
    expect(log).toEqual(["ended: later"]);
    watcher.notify();
    expect(log).toEqual(["ended: later", "notified"]);
  });

  test("calls all that wait for it, in their order, and at once what comes later", () => {
    const { watcher } = World.live();
    const called: number[] = [];
    watcher.whenEnded(() => called.push(1));
    watcher.whenEnded(() => called.push(2));
    expect(called).toEqual([]);
    watcher.close();
    expect(called).toEqual([1, 2]);
    watcher.whenEnded(() => called.push(3));
    expect(called).toEqual([1, 2, 3]);
  });

  test("comes before the first response if its opening fails: nothing is put into the buffer", () => {
    const { watcher } = new World();
    watcher.fail(new Error("refused"));
    watcher.open(bookmark(3));
    expect([watcher.read(), watcher.buffer.length]).toEqual([undefined, 0]);
    watcher.stall({} as never);
    expect(watcher.state).toBe("ended");
    expect(watcher.offer(batch(2), bounds)).toBe(false);
  });
});
