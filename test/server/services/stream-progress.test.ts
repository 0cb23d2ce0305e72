import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { upstreamUnavailable } from "../../../src/base/errors.ts";
import type { ServedResource } from "../../../src/server/calls/service-options.ts";
import { nextStreamId } from "../../../src/server/kernel/open-streams.ts";
import { StreamProgress } from "../../../src/server/services/subscribe/stream-progress.ts";
import type { Subscription } from "../../../src/server/services/subscribe/subscription.ts";

type Asked = Pick<ServedResource, "name" | "currentHistoryId" | "reachCurrentRevision">;

/** A stream with a watch of each resource, all of which have delivered everything up to revision 100. */
function setUp(...resources: readonly Asked[]) {
  const watches = resources.map(
    (served, i) =>
      ({ id: 0, key: i + 1, served, deliveredRevision: 100 }) as unknown as Subscription,
  );
  const all = new Map(watches.map((watch) => [watch.key, watch]));
  const answers: unknown[] = [];
  const progress = new StreamProgress({
    isOver: false,
    watches: all,
    resources: resources as readonly ServedResource[],
    run: async (work) => {
      while (work.next().done !== true) await nextTurn();
    },
    progressed: (revision, tag) => answers.push([revision, tag]),
    progressFailed: (id, error) => answers.push([id, (error as { reason: string }).reason]),
    ready: ({ key }) => answers.push(key),
  });
  return { watches, progress, answers, all };
}

function reaches(name: string, currentHistoryId: string, revision: number): Asked {
  return { name, currentHistoryId, reachCurrentRevision: () => Promise.resolve(revision) };
}

test("Resources of different histories have no common progress", async () => {
  const { progress, answers } = setUp(reaches("a", "one", 7), reaches("b", "two", 90));
  progress.requestOfAll(1n);
  await nextTurn();
  expect(answers).toEqual([[0, "INVALID_REQUEST"]]);
});

test("A resource whose history is not known yet prevents no common progress", async () => {
  const { progress, answers } = setUp(reaches("a", "one", 7), reaches("b", "", 7));
  progress.requestOfAll(1n);
  await nextTurn();
  expect(answers).toEqual([[7, 1n]]);
});

test("A request that came while one was refused gets an answer of its own", async () => {
  let asked = 0;
  const reachCurrentRevision = async (): Promise<number> => {
    if (++asked === 1) throw upstreamUnavailable("The store is away.");
    return 8;
  };
  const { watches, progress, answers } = setUp({
    ...{ name: "a", currentHistoryId: "one", reachCurrentRevision },
  });
  for (let i = 0; i < 3; i++) progress.requestOf(watches[0] as Subscription);
  await nextTurn();
  expect(answers).toEqual([[1, "UPSTREAM_UNAVAILABLE"], 1]);
  expect(asked).toBe(2);
});

test("Looks at many watches in steps, and waits for those that are behind, but not for later ones", async () => {
  const things = reaches("a", "one", 7);
  const { watches, progress, answers, all } = setUp(...Array.from({ length: 1_000 }, () => things));
  const [behind, later] = [watches[0] as Subscription, { ...watches[1], deliveredRevision: 1 }];
  const deliver = (revision: number): void => {
    (behind as { deliveredRevision: number }).deliveredRevision = revision;
    progress.settled(behind);
  };
  deliver(5);
  progress.requestOfAll(3n);
  all.set(2_000, { ...later, id: nextStreamId() } as Subscription);
  await nextTurn();
  await nextTurn();
  deliver(6);
  deliver(7);
  // Of a thousand it has not looked at all.
  expect(answers).toEqual([]);
  for (let turns = 0; answers.length === 0 && turns < 100; turns++) await nextTurn();
  expect(answers).toEqual([[7, 3n]]);
});

test("Progress is not below the store's revision, though a watch that had it has something to send again.", async () => {
  const things = reaches("a", "one", 5);
  const { watches, progress, answers } = setUp(things, things);
  const [one, other] = watches.map((watch) => watch as { deliveredRevision: number });
  if (one === undefined || other === undefined) throw new Error("There are two watches.");
  [one.deliveredRevision, other.deliveredRevision] = [5, 3];
  progress.requestOfAll(1n);
  await nextTurn();
  await nextTurn();
  expect(answers).toEqual([]);
  // Of a watch that waits for credit only the last resume point is known.
  one.deliveredRevision = 2;
  other.deliveredRevision = 6;
  progress.settled(other as unknown as Subscription);
  expect(answers).toEqual([[5, 1n]]);
});
