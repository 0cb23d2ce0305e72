import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { StreamProgress } from "../../../src/server/services/subscribe/stream-progress.ts";
import type { Subscription } from "../../../src/server/services/subscribe/subscription.ts";

/** A watch of a store at revision 5, that has delivered everything up to here. */
function watchAt(key: number, deliveredRevision: number) {
  const served = { name: "things", currentHistoryId: "", reachCurrentRevision: async () => 5 };
  return { key, served, deliveredRevision, isOver: false, isAwaited: false };
}

test("Progress is not below the store's revision, though a watch that had it has something to send again.", async () => {
  const [one, other] = [watchAt(1, 5), watchAt(2, 3)];
  const watches = new Map(
    [one, other].map((watch) => [watch.key, watch as unknown as Subscription]),
  );
  const answers: number[] = [];
  const progress = new StreamProgress({
    isOver: false,
    watches,
    progressed: (revision) => answers.push(revision),
    progressFailed: (_id, error) => {
      throw error;
    },
    ready: () => {},
  });
  progress.requestOfAll(1n);
  await nextTurn();
  expect(answers).toEqual([]);
  // Of a watch that waits for credit only the last resume point is known.
  one.deliveredRevision = 2;
  other.deliveredRevision = 6;
  progress.settled(other as unknown as Subscription);
  expect(answers).toEqual([5]);
});
