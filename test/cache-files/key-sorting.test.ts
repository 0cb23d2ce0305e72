import { describe, expect, it } from "vitest";
import { inKeyOrder } from "../../src/cache-files/key-sorting.ts";
import { compareKeys } from "../../src/model/key-order.ts";

/** So many entries with different keys, mixed; the values are their positions. */
function mixed(count: number): [string, number][] {
  // 7919 is prime to all counts of the tests.
  return Array.from({ length: count }, (_, i) => [`key-${(i * 7919) % count}`, i]);
}

describe("A sort by keys", () => {
  it.each([0, 1, 2, 255, 256, 257, 512, 513, 1_000, 10_000])("orders %d entries", (count) => {
    const expected = mixed(count).sort(([one], [other]) => compareKeys(one, other));
    const work = inKeyOrder(mixed(count));
    let result = work.next();
    while (!result.done) result = work.next();
    expect(result.value).toEqual(expected);
  });

  it("does no more than a small part in one step", () => {
    const entries = mixed(20_000);
    let comparisons = 0;
    let most = 0;
    for (const entry of entries) {
      const [key] = entry;
      const get = (): string => {
        comparisons++;
        return key;
      };
      Object.defineProperty(entry, 0, { get });
    }
    for (const _ of inKeyOrder(entries)) {
      most = Math.max(most, comparisons);
      comparisons = 0;
    }
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(6_000);
  });
});
