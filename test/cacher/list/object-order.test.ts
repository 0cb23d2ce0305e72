import { describe, expect, it } from "vitest";
import {
  byCreateRevision,
  byKey,
  byModRevision,
  type Compare,
  descending,
  FirstInOrder,
} from "../../../src/cacher/list/object-order.ts";
import { StoredObject } from "../../../src/model/object.ts";
import fc, { runs } from "../../property.ts";
import { finish } from "../finish.ts";

function object(index: number, create: number, mod: number): StoredObject {
  const key = String(index).padStart(7, "0");
  return new StoredObject(key, Buffer.of(), create, mod, 1, 0n);
}

/** Offers all of them. `after` is called after each one. */
function firstOf(
  first: FirstInOrder,
  objects: readonly StoredObject[],
  after: () => void = () => {},
): StoredObject[] {
  for (const one of objects) {
    first.offer(one);
    if (first.isFull) finish(first.trim());
    after();
  }
  return finish(first.finish());
}

const compare: fc.Arbitrary<Compare> = fc
  .tuple(fc.constantFrom(byKey, byModRevision, byCreateRevision), fc.boolean())
  .map(([ascending, isDescending]) => (isDescending ? descending(ascending) : ascending));

describe("The first objects in an order", () => {
  it("are those of all objects sorted, with equal ones in key order, however many are kept", () => {
    const revision = fc.integer({ min: 1, max: 50 });
    const revisions = fc.array(fc.tuple(revision, revision), { maxLength: 5_000, size: "max" });
    const most = fc.constantFrom(1, 2, 10, 511, 512, 513, 1_500, Infinity);
    fc.assert(
      fc.property(revisions, most, compare, (all, kept, order) => {
        const objects = all.map(([create, mod], i) => object(i, create, mod));
        const expected = objects.toSorted(order).slice(0, kept);
        expect(firstOf(new FirstInOrder(order, kept), objects)).toEqual(expected);
      }),
      { numRuns: runs(200) },
    );
  });

  it("are all that is held, up to twice as many, or 1,024, of any number of objects", () => {
    for (const [most, held] of [
      [10, 1_024],
      [5_000, 10_000],
    ] as const) {
      const objects = Array.from({ length: 30_000 }, (_, i) => object(i, 1, 30_000 - i));
      const first = new FirstInOrder(byModRevision, most);
      let largest = 0;
      const kept = firstOf(first, objects, () => {
        largest = Math.max(largest, first.size);
      });
      expect(kept.map(({ modRevision }) => modRevision)).toEqual(
        Array.from({ length: most }, (_, i) => i + 1),
      );
      expect(largest).toBeLessThanOrEqual(held);
    }
  });

  it("are sorted in steps of some hundred comparisons", () => {
    let compared = 0;
    const counting: Compare = (one, other) => {
      compared++;
      return byModRevision(one, other);
    };
    const first = new FirstInOrder(counting, Infinity);
    for (let i = 0; i < 50_000; i++) first.offer(object(i, 1, (i * 7_919) % 50_021));
    const work = first.finish();
    for (let before = 0; work.next().done !== true; before = compared) {
      // A run of 256 objects needs at most 256 × 8 comparisons.
      expect(compared - before).toBeLessThanOrEqual(2_048);
    }
    expect(compared).toBeGreaterThan(500_000);
  });
});
