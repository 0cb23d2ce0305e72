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
