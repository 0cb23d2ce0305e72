import { expect, test } from "vitest";
import { Heap } from "../../src/base/heap.ts";
import fc from "../property.ts";

interface Item {
  place: number;
  size: number;
  readonly id: number;
}

let comparisons = 0;

function isLarger(a: Item, b: Item): boolean {
  comparisons++;
  return a.size > b.size || (a.size === b.size && a.id < b.id);
}

const steps = fc.array(
  fc.record({
    what: fc.constantFrom("add", "add", "delete", "resize"),
    ...{ size: fc.nat(20), index: fc.nat() },
  }),
  { maxLength: 80 },
);

test("A heap has the item first that no other precedes, and finds the first that is accepted", () => {
  fc.assert(
    fc.property(steps, fc.nat(20), (all, limit) => {
      const heap = new Heap<Item>(isLarger);
      const items: Item[] = [];
      for (const [id, { what, size, index }] of all.entries()) {
        const chosen = items[index % Math.max(1, items.length)];
        if (what === "add") {
          const item = { place: -1, size, id };
          items.push(item);
          heap.add(item);
        } else if (chosen !== undefined && what === "delete") {
          items.splice(items.indexOf(chosen), 1);
          heap.delete(chosen);
          expect(chosen.place).toBe(-1);
        } else if (chosen !== undefined) {
          chosen.size = size;
          heap.moved(chosen);
        }
        const sorted = items.toSorted((a, b) => b.size - a.size || a.id - b.id);
        expect(heap.size).toBe(items.length);
        expect(heap.first).toBe(sorted[0]);
        let asked = 0;
        const found = heap.find((item) => {
          asked++;
          return item.size <= limit ? item : undefined;
        });
        const before = sorted.findIndex((item) => item.size <= limit);
        expect(asked).toBeLessThanOrEqual(before < 0 ? items.length : 2 * before + 1);
        expect(found).toBe(sorted.find((item) => item.size <= limit));
      }
    }),
  );
});

test("A heap compares few items to add, move and delete one of many", () => {
  const heap = new Heap<Item>(isLarger);
  const count = 10_000;
  const items = Array.from({ length: count }, (_, id) => ({ place: -1, size: (id * 7) % 64, id }));
  for (const item of items) heap.add(item);
  comparisons = 0;
  for (const item of items) {
    item.size = 64 - item.size;
    heap.moved(item);
  }
  for (const item of items) heap.delete(item);
  expect(comparisons / count).toBeLessThan(8 * Math.log2(count));
  expect(heap.first).toBeUndefined();
});
