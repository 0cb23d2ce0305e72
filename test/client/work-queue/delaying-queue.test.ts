import { expect, it } from "vitest";
import { Delayed, DelayingQueue } from "../../../src/client/work-queue/delaying-queue.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";

class Thing extends Delayed {
  readonly name: number;

  constructor(name: number) {
    super();
    this.name = name;
  }
}

it("A DelayingQueue returns the item that is due first, in order of insertion, at the earlier of two times.", () => {
  const put = fc.record({ name: fc.nat(15), delayMs: fc.nat(30) });
  const wait = fc.record({ ms: fc.nat(10) });
  const steps = fc.array(
    fc.oneof({ weight: 3, arbitrary: put }, wait, fc.constant("clear" as const)),
    { maxLength: 100 },
  );
  fc.assert(
    fc.property(steps, (todo) => {
      const clock = new FakeClock();
      const things = Array.from({ length: 16 }, (_, name) => new Thing(name));
      const taken: number[] = [];
      const queue = new DelayingQueue<Thing>(clock, ({ name }) => taken.push(name));
      let model: { readonly name: number; readonly due: number }[] = [];
      const advance = (ms: number): void => {
        clock.advance(ms);
        const due = model.filter((one) => one.due <= clock.now());
        const expected = due.toSorted((a, b) => a.due - b.due).map(({ name }) => name);
        expect(taken.splice(0)).toEqual(expected);
        model = model.filter((one) => !due.includes(one));
        expect(queue.length).toBe(model.length);
      };
      for (const step of todo) {
        if (step === "clear") {
          const cleared = queue.clear().map(({ name }) => name);
          expect(cleared.sort()).toEqual(model.map(({ name }) => name).sort());
          model = [];
        } else if ("ms" in step) {
          advance(step.ms);
        } else {
          const thing = things[step.name];
          const due = clock.now() + step.delayMs;
          if (thing !== undefined) queue.put(thing, step.delayMs);
          const known = model.find(({ name }) => name === step.name);
          if (known !== undefined && known.due <= due) continue;
          model = [...model.filter((other) => other !== known), { name: step.name, due }];
        }
      }
      advance(100);
      expect(things.every(({ place }) => place === -1)).toBe(true);
    }),
    { numRuns: runs(500) },
  );
});
