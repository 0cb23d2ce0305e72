import { expect, it } from "vitest";
import { Delayed, DelayHeap } from "../../../src/client/work-queue/delay-heap.ts";
import fc, { runs } from "../../property.ts";

class Thing extends Delayed {
  readonly name: number;

  constructor(name: number) {
    super();
    this.name = name;
  }
}

it("A DelayHeap returns the item that is due first, in order of insertion, at the earlier of two times.", () => {
  const put = fc.record({ name: fc.nat(15), due: fc.nat(30) });
  const steps = fc.array(
    fc.oneof(
      { weight: 3, arbitrary: put },
      fc.constantFrom("shift" as const, "shift" as const, "clear" as const),
    ),
    {
      maxLength: 100,
    },
  );
  fc.assert(
    fc.property(steps, (todo) => {
      const things = Array.from({ length: 16 }, (_, name) => new Thing(name));
      const heap = new DelayHeap<Thing>();
      let model: { readonly name: number; readonly due: number }[] = [];
      const shift = (): void => {
        const next = model.toSorted((a, b) => a.due - b.due)[0];
        expect(heap.first?.name).toBe(next?.name);
        expect(heap.shift()?.name).toBe(next?.name);
        model = model.filter((other) => other !== next);
      };
      for (const step of todo) {
        if (step === "shift") {
          shift();
          continue;
        }
        if (step === "clear") {
          const cleared = heap.clear().map(({ name }) => name);
          expect(cleared.sort()).toEqual(model.map(({ name }) => name).sort());
          model = [];
          continue;
        }
        const thing = things[step.name];
        if (thing !== undefined) heap.put(thing, step.due);
        const known = model.find(({ name }) => name === step.name);
        if (known !== undefined && known.due <= step.due) continue;
        model = [...model.filter((other) => other !== known), step];
      }
      while (model.length > 0) shift();
      expect(heap.length).toBe(0);
      expect(heap.shift()).toBe(undefined);
      expect(things.every(({ position }) => position === -1)).toBe(true);
    }),
    { numRuns: runs(500) },
  );
});
