import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import type { SourceContext } from "../../../src/cacher/catch-up/watch-source.ts";
import type { ComponentContext } from "../../../src/cacher/state/component.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { MaintenanceRecord } from "../../../src/cacher/watch/cache-watcher.ts";
import {
  maintenanceIntervalMs,
  WatcherMaintenance,
} from "../../../src/cacher/watch/watcher-maintenance.ts";
import { WorkClock } from "../../work-clock.ts";

/** A clock whose immediates wait while it is held. */
class HeldClock extends WorkClock {
  isHeld = false;

  override runImmediates(): void {
    if (!this.isHeld) super.runImmediates();
  }
}

interface Options {
  readonly bookmarkIntervalMs: number;
  readonly deadline: number;
  readonly expiresAt: number;
}

/** A watcher as the maintenance sees it. It was opened at 0. */
class TestWatcher {
  readonly maintenance: MaintenanceRecord;
  readonly options: Partial<Options>;
  position = 0;
  consumed = 0;
  hasPending = false;
  error: WatchFanoutError | undefined;
  checkWindow = (): void => {};

  constructor(options: Partial<Options>, openedAt = 0) {
    this.options = { bookmarkIntervalMs: 60_000, ...options };
    this.maintenance = new MaintenanceRecord(openedAt);
  }

  endAndDiscard(error: WatchFanoutError): void {
    this.error ??= error;
  }

  fail(error: WatchFanoutError): void {
    this.error ??= error;
  }
}

/** The maintenance of some watchers, and when it did what. Passes are at 500, 1000 and so on. */
class World {
  readonly clock = new HeldClock();
  readonly bookmarks: number[] = [];
  readonly requests: number[] = [];
  readonly trims: number[] = [];
  readonly expiries: number[] = [];
  /** Until then a watcher takes no bookmark. */
  refusesUntil = 0;
  readonly maintenance: WatcherMaintenance;

  constructor(...watchers: readonly TestWatcher[]) {
    const { clock } = this;
    const context = {
      clock,
      cache: { eventWindow: { trim: (now: number) => this.trims.push(now) } },
      source: { requestProgress: () => this.requests.push(clock.now()) },
    } as unknown as ComponentContext;
    const dispatcher = {
      sendBookmark: () => {
        this.bookmarks.push(clock.now());
        return clock.now() >= this.refusesUntil;
      },
    };
    const sources = { dispatcher, bounds: { stallTimeoutMs: 2_000 } } as unknown as SourceContext;
    const expiring = [{ expire: () => this.expiries.push(clock.now()) }];
    const all = new Set(watchers as readonly unknown[] as CacheWatcher[]);
    this.maintenance = new WatcherMaintenance(context, sources, expiring, all);
    this.maintenance.start();
  }
}

describe("Each pass of the watcher maintenance", () => {
  test("trims the event window, and drops what is shared for too long", () => {
    const world = new World();
    world.clock.advance(1_200);
    expect([world.trims, world.expiries]).toEqual([
      [500, 1_000],
      [500, 1_000],
    ]);
  });

  test("is one, however often it is started, until it is stopped", () => {
    const world = new World();
    world.maintenance.start();
    world.clock.advance(maintenanceIntervalMs);
    expect(world.trims).toEqual([500]);
    world.maintenance.stop();
    world.maintenance.stop();
    expect(world.clock.pendingTimers).toBe(0);
  });

  test("waits for a pass that takes longer than the interval", () => {
    const checked: string[] = [];
    const named = (name: string): TestWatcher => {
      const watcher = new TestWatcher({});
      watcher.checkWindow = () => {
        checked.push(name);
        // More than the slice of a turn.
        world.clock.spend(10);
      };
      return watcher;
    };
    const world = new World(named("a"), named("b"));
    world.clock.isHeld = true;
    world.clock.advance(2_000);
    expect(checked).toEqual(["a"]);
    world.clock.isHeld = false;
    world.clock.runImmediates();
    expect(checked).toEqual(["a", "b"]);
    world.clock.advance(maintenanceIntervalMs);
    expect(checked).toEqual(["a", "b", "a", "b"]);
  });
});

describe("A watcher whose resume point does not move", () => {
  test("gets a bookmark at its interval, and one that it can't take as soon as it can", () => {
    const world = new World(new TestWatcher({ bookmarkIntervalMs: 2_000 }));
    world.clock.advance(4_400);
    expect(world.bookmarks).toEqual([2_000, 4_000]);
    world.refusesUntil = 7_000;
    world.clock.advance(5_000);
    expect(world.bookmarks.slice(2)).toEqual([6_000, 6_500, 7_000, 9_000]);
  });

  test("gets none while events move it", () => {
    const watcher = new TestWatcher({ bookmarkIntervalMs: 1_000 });
    const world = new World(watcher);
    for (let i = 0; i < 10; i++) {
      watcher.position++;
      world.clock.advance(500);
    }
    expect(world.bookmarks).toEqual([]);
    world.clock.advance(1_000);
    expect(world.bookmarks).toEqual([6_000]);
  });

  test("has progress requested from the store once, at the pass before", () => {
    const world = new World(new TestWatcher({ bookmarkIntervalMs: 2_000 }));
    world.clock.advance(5_900);
    expect(world.requests).toEqual([1_500, 3_500, 5_500]);
    // Not while it can take no bookmark.
    world.refusesUntil = 9_000;
    world.clock.advance(5_000);
    expect(world.requests.slice(3)).toEqual([10_500]);
  });
});

describe("A watcher with a deadline", () => {
  test("gets one bookmark two seconds before it, with progress of the store requested before", () => {
    const world = new World(new TestWatcher({ deadline: 10_000 }));
    world.clock.advance(12_000);
    expect([world.bookmarks, world.requests]).toEqual([[8_000], [7_500]]);
  });

  test("gets the next one at its interval after that", () => {
    const world = new World(new TestWatcher({ deadline: 4_000, bookmarkIntervalMs: 3_000 }));
    world.clock.advance(6_000);
    expect(world.bookmarks).toEqual([2_000, 5_000]);
  });

  test("that can't take it gets it as soon as it can", () => {
    const world = new World(new TestWatcher({ deadline: 4_000, bookmarkIntervalMs: 3_000 }));
    world.refusesUntil = 4_000;
    world.clock.advance(6_900);
    // From 3000 on the bookmark of the interval is due, too.
    expect(world.bookmarks).toEqual([2_000, 2_500, 3_000, 3_000, 3_500, 3_500, 4_000]);
    world.clock.advance(100);
    expect(world.bookmarks.at(-1)).toBe(7_000);
  });
});

describe("A watcher whose client takes nothing", () => {
  test("ends after the stall timeout", () => {
    const stuck = new TestWatcher({});
    stuck.hasPending = true;
    const world = new World(stuck);
    world.clock.advance(1_900);
    expect(stuck.error).toBeUndefined();
    world.clock.advance(100);
    expect(stuck.error?.reason).toBe("SLOW_CONSUMER");
    expect(stuck.error?.message).toContain("for 2 s.");
  });

  test("has the time since it last took something, or had nothing to take", () => {
    const [slow, idle] = [new TestWatcher({}), new TestWatcher({})];
    slow.hasPending = true;
    const world = new World(slow, idle);
    for (let i = 0; i < 6; i++) {
      slow.consumed++;
      world.clock.advance(500);
    }
    idle.hasPending = true;
    world.clock.advance(1_900);
    expect([slow.error, idle.error]).toEqual([undefined, undefined]);
    world.clock.advance(100);
    expect([slow.error?.reason, idle.error?.reason]).toEqual(["SLOW_CONSUMER", "SLOW_CONSUMER"]);
  });
});

describe("A watcher that has expired", () => {
  test("ends behind a last bookmark", () => {
    const watcher = new TestWatcher({ expiresAt: 2_000 });
    const world = new World(watcher);
    world.clock.advance(1_900);
    expect([world.bookmarks, watcher.error]).toEqual([[], undefined]);
    world.clock.advance(100);
    expect([world.bookmarks, watcher.error?.reason]).toEqual([[2_000], "DRAINING"]);
  });

  test("waits up to five seconds until it can take that", () => {
    const watchers = [2_000, 3_000].map((expiresAt) => new TestWatcher({ expiresAt }));
    const world = new World(...watchers);
    world.refusesUntil = 7_500;
    world.clock.advance(6_900);
    expect(watchers.map(({ error }) => error)).toEqual([undefined, undefined]);
    world.clock.advance(100);
    expect(watchers.map(({ error }) => error?.reason)).toEqual(["DRAINING", undefined]);
    world.clock.advance(500);
    expect(watchers[1]?.error?.reason).toBe("DRAINING");
  });
});
