import { expect, test } from "vitest";
import { EventLoopTurns, turnMs } from "../../../src/base/event-loop-turns.ts";
import type { DispatchTarget } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { SettledWork } from "../../../src/cacher/dispatch/settled-work.ts";
import { WorkClock } from "../../work-clock.ts";

test("Rounds that end in a turn whose slice is over share one pass over the eager watchers", () => {
  const clock = new WorkClock();
  const bookmarked: DispatchTarget[] = [];
  const work = new SettledWork(clock, {
    settledRevision: 7,
    requestBookmark: (watcher) => void bookmarked.push(watcher),
  });
  const watcher = { position: 3, options: { eagerBookmarks: true } } as DispatchTarget;
  work.add(watcher);
  // Another worker has used the slice of this turn.
  const { sliceEnd } = EventLoopTurns.of(clock);
  clock.spend(turnMs);
  expect(clock.now()).toBe(sliceEnd);
  for (let round = 0; round < 5; round++) work.run();
  expect(bookmarked).toEqual([]);
  clock.runImmediates();
  expect(bookmarked).toEqual([watcher]);
  // The next round begins another pass.
  work.run();
  clock.runImmediates();
  expect(bookmarked).toEqual([watcher, watcher]);
});

function target(name: string, position: number, called: string[], eager = false): DispatchTarget {
  const options = { eagerBookmarks: eager };
  return { position, options, notify: () => called.push(name) } as unknown as DispatchTarget;
}

test("Watchers that wait for a round are notified once, unless they are removed before it", () => {
  const called: string[] = [];
  const work = new SettledWork(new WorkClock(), {
    settledRevision: 7,
    requestBookmark: () => {},
  });
  const [first, second] = [target("first", 0, called), target("second", 0, called)];
  work.notifyNext(first);
  work.notifyNext(second);
  work.remove(second);
  work.run();
  work.run();
  expect(called).toEqual(["first"]);
  work.notifyNext(first);
  work.clear();
  work.run();
  expect(called).toEqual(["first"]);
});

test("Callbacks are called once, when their revision is settled", () => {
  const called: number[] = [];
  const dispatcher = { settledRevision: 4, requestBookmark: () => {} };
  const work = new SettledWork(new WorkClock(), dispatcher);
  for (const revision of [4, 5, 9]) work.addCallback(revision, () => void called.push(revision));
  work.run();
  expect(called).toEqual([4]);
  dispatcher.settledRevision = 8;
  work.run();
  work.run();
  expect(called).toEqual([4, 5]);
  work.clear();
  dispatcher.settledRevision = 9;
  work.run();
  expect(called).toEqual([4, 5]);
});

test("Only the watchers that want eager bookmarks get them, where they are behind, until they are removed", () => {
  const clock = new WorkClock();
  const bookmarked: DispatchTarget[] = [];
  const dispatcher = {
    settledRevision: 7,
    requestBookmark: (watcher: DispatchTarget) => {
      bookmarked.push(watcher);
      // A revision that is settled during the pass makes another one.
      if (bookmarked.length === 1) dispatcher.settledRevision = 8;
    },
  };
  const work = new SettledWork(clock, dispatcher);
  const behind = target("behind", 3, [], true);
  const removed = target("removed", 3, [], true);
  work.add(behind);
  work.add(target("without eager bookmarks", 3, []));
  work.add(target("synced", 8, [], true));
  work.add(removed);
  work.remove(removed);
  work.run();
  clock.runImmediates();
  expect(bookmarked).toEqual([behind, behind]);
  work.clear();
  work.run();
  clock.runImmediates();
  expect(bookmarked).toHaveLength(2);
});
