import { expect, test } from "vitest";
import { CachedStore } from "../cached-store.ts";

test("Each dispatch round reports the time since its oldest event arrived, once", async () => {
  const reported: number[] = [];
  const cached = await CachedStore.ready({
    watchers: { dispatchIntervalMs: 20 },
    onDispatched: (latencyMs) => reported.push(latencyMs),
  });
  const { clock } = cached;
  expect(reported).toEqual([]);
  clock.advance(1_000);
  await cached.write(["a", "x"], ["b", "x"]);
  expect(reported).toEqual([0]);
  // The next round waits for the interval: `c` for 20 ms, `d` for 5 ms.
  await cached.write(["c", "x"]);
  clock.advance(15);
  await cached.write(["d", "x"]);
  expect(reported).toEqual([0]);
  clock.advance(5);
  await clock.settle();
  expect(reported).toEqual([0, 20]);
});
