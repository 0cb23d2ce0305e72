import { expect, test } from "vitest";
import { BusyClock } from "../cacher/busy-clock.ts";
import fc, { runs } from "../property.ts";
import type { WatchWish } from "./arbitraries.ts";
import { CachedWorld } from "./cached-world.ts";
import { restartingStep, type Setup, type Step, setup, step } from "./steps.ts";

const smallest: Setup = {
  ...{ before: [[["b", "{}"]], [["b", null]]], entangled: false, historyEvents: 1 },
  watchers: { maxBufferBatches: 1, maxBufferBytes: 1, batchBytes: 1, scanEvents: 1 },
};
const wish: WatchWish = {
  ...{ scope: { prefix: "" }, selector: { labels: [], fields: [] }, unusable: undefined },
  ...{ includePrevious: false, back: 3, sendInitialEvents: false, delivery: "EVERY_EVENT" },
  ...{ bookmarkIntervalMs: 1_000, eagerBookmarks: false, lifetimeMs: undefined },
  ...{ history: "this one", takesAtOnce: false },
};

/** Histories of which the model once expected something else than the contract. */
const misjudged: readonly (readonly [string, readonly Step[]])[] = [
  [
    "reads the store in two parts, neither of which it selects anything of",
    [
      { step: "write", entries: [["a/2", "{}"]] },
      { step: "watch", wish: { ...wish, scope: { key: "a" } } },
      { step: "write", entries: [["b", "{}"]] },
      { step: "take", stream: 0, batches: 1 },
      { step: "ask for progress" },
    ],
  ],
  [
    "reads from the store what the cache has missed",
    [
      {
        step: "lose history",
        writes: [[["b", "{}"]], [["b", null]], [["a/1", "{}"]]],
        back: 2,
      },
      { step: "write", entries: [["b", "{}"]] },
      { step: "watch", wish: { ...wish, delivery: "LATEST_STATE" } },
    ],
  ],
  [
    "resumes from before what the store has not compacted",
    [
      { step: "compact", back: 0 },
      { step: "write", entries: [["b", "{}"]] },
      { step: "write", entries: [["b", null]] },
      { step: "settle" },
      { step: "watch", wish: { ...wish, back: 5 } },
    ],
  ],
];

test.each(misjudged)("A Cacher answers as the model does a watch that %s.", async (_, steps) => {
  await new CachedWorld(smallest, []).live(steps);
});

test("A Cacher answers any requests on any history as the model does, with indexes and without.", async () => {
  await fc.assert(
    fc.asyncProperty(setup, fc.array(step, { maxLength: 80, size: "max" }), async (how, steps) => {
      const plain = new CachedWorld(how, []);
      await plain.live(steps);
      const indexed = new CachedWorld(how, ["phase", "spec.node"]);
      await indexed.live(steps);
      // With readers that read from each other's streams, the order of turns matters.
      if (!how.entangled) expect(indexed.outcome).toEqual(plain.outcome);
    }),
    { numRuns: runs(300) },
  );
}, 240_000);

test("A Cacher answers as the model does with the smallest time slices.", async () => {
  await fc.assert(
    fc.asyncProperty(setup, fc.array(step, { maxLength: 80, size: "max" }), async (how, steps) => {
      await new CachedWorld(how, [], new BusyClock()).live(steps);
    }),
    { numRuns: runs(200) },
  );
}, 240_000);

test("A Cacher that starts from the state that another one has kept answers as the model does.", async () => {
  const steps = fc.array(restartingStep, { maxLength: 80, size: "max" });
  await fc.assert(
    fc.asyncProperty(setup, steps, async (how, taken) => {
      await new CachedWorld(how, []).live(taken);
    }),
    { numRuns: runs(200) },
  );
}, 240_000);
