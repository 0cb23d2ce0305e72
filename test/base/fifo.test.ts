import { expect, test } from "vitest";
import { Fifo } from "../../src/base/fifo.ts";
import fc from "../property.ts";

test("a Fifo is an array of which the front is taken", () => {
  const steps = fc.array(fc.boolean(), { maxLength: 200 });
  fc.assert(
    fc.property(steps, (pushes) => {
      const fifo = new Fifo<number>();
      const array: number[] = [];
      for (const [i, push] of pushes.entries()) {
        if (push) {
          fifo.push(i);
          array.push(i);
        } else {
          expect(fifo.shift()).toBe(array.shift());
        }
        expect(fifo.length).toBe(array.length);
        for (let at = 0; at <= array.length; at++) expect(fifo.at(at)).toBe(array[at]);
        expect(fifo.at(-1)).toBeUndefined();
      }
    }),
  );
});
