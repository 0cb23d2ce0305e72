import { expect, test } from "vitest";
import { BusyClock } from "../cacher/busy-clock.ts";
import fc, { runs } from "../property.ts";
import { CachedWorld } from "./cached-world.ts";
import { restartingStep, setup, step } from "./steps.ts";

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
