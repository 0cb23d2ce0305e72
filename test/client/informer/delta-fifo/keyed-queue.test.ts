import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { KeyedQueue } from "../../../../src/client/informer/delta-fifo/keyed-queue.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test.each([1, 10, 100])(
  "Entries deleted while nothing is taken are garbage, %i queued at a time",
  async (atOnce) => {
    const queue = new KeyedQueue<object>();
    queue.set("first", {});
    queue.set("second", {});
    queue.shift();
    const deleted: WeakRef<object>[] = [];
    for (let i = 0; i < 5_000; i++) {
      const entry = {};
      queue.set(String(i), entry);
      if (i < atOnce) continue;
      const oldest = String(i - atOnce);
      deleted.push(new WeakRef(queue.get(oldest) as object));
      queue.delete(oldest);
    }
    // A weak reference that was made in this turn keeps its target alive until the next turn.
    await nextTurn();
    collectGarbage();
    // The engine's tables have room for some that were deleted.
    const kept = deleted.filter((entry) => entry.deref() !== undefined);
    expect(kept.length).toBeLessThanOrEqual(4 * atOnce + 32);
    expect(queue.length).toBe(1 + atOnce);
  },
);

test("Entries are taken in the order of their keys, whichever were deleted", () => {
  const queue = new KeyedQueue<number>();
  const expected: number[] = [];
  for (let i = 0; i < 1_000; i++) {
    queue.set(String(i), i);
    expected.push(i);
    if (i % 3 === 0) expect(queue.shift()).toBe(expected.shift());
    if (i % 5 < 2) {
      const [key] = expected.splice(Math.floor(expected.length / 2), 1);
      if (key !== undefined) queue.delete(String(key));
    }
  }
  for (const entry of expected) expect(queue.shift()).toBe(entry);
  expect(queue.shift()).toBeUndefined();
});
