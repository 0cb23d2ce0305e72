import { getHeapSpaceStatistics } from "node:v8";
import { describe, expect, it } from "vitest";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { object } from "../objects.ts";

/** Memory of the arrays that are too large for the young generation's pages, garbage included, in bytes. */
function largeArrayBytes(): number {
  const spaces = getHeapSpaceStatistics().filter(({ space_name: name }) =>
    name.endsWith("large_object_space"),
  );
  return spaces.reduce((sum, { space_used_size: bytes }) => sum + bytes, 0);
}

describe("The ordered store of a large state", () => {
  it("is built without arrays of its size, which V8 would keep until its next full collection", () => {
    const count = 200_000;
    const objects = Array.from({ length: count }, (_, i) =>
      object(String(i).padStart(6, "0"), i + 1),
    );
    const before = largeArrayBytes();
    const store = OrderedStore.of(objects);
    // An array of all keys would take eight bytes for each.
    expect(largeArrayBytes() - before).toBeLessThan(count);
    expect(store.size).toBe(count);
  });
});
