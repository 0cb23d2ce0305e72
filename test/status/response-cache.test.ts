import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { ResponseCache, TooManyRequests } from "../../src/server/admin/status/status-pages.ts";
import { FakeClock } from "../fake-clock.ts";

test("What is requested within a second is computed once, also while it is computed.", async () => {
  const clock = new FakeClock();
  const cache = new ResponseCache(clock);
  let computed = 0;
  const get = (): Promise<string> => cache.get("a", async () => String(++computed));
  expect(await Promise.all([get(), get(), get()])).toEqual(["1", "1", "1"]);
  clock.advance(800);
  expect(await get()).toBe("1");
  clock.advance(200);
  expect(await get()).toBe("2");
});

test("Two different responses are computed at once; 16 wait, and further ones are refused.", async () => {
  const cache = new ResponseCache(new FakeClock());
  const finish: (() => void)[] = [];
  const compute = (): Promise<string> =>
    new Promise((resolve) => finish.push(() => resolve("done")));
  const accepted = Array.from({ length: 18 }, (_, i) => cache.get(String(i), compute));
  await expect(cache.get("another", compute)).rejects.toThrow(TooManyRequests);
  expect(finish).toHaveLength(2);
  for (let i = 0; i < 18; i++) {
    finish[i]?.();
    await nextTurn();
    expect(finish.length).toBeLessThanOrEqual(i + 3);
  }
  expect(await Promise.all(accepted)).toEqual(new Array(18).fill("done"));
});

test("A failure is not kept.", async () => {
  const cache = new ResponseCache(new FakeClock());
  await expect(cache.get("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  await nextTurn();
  expect(await cache.get("a", async () => "yes")).toBe("yes");
});

test("32 responses are kept; the oldest ones are computed again.", async () => {
  const cache = new ResponseCache(new FakeClock());
  let computed = 0;
  const get = (i: number): Promise<string> => cache.get(String(i), async () => String(++computed));
  for (let i = 0; i < 33; i++) await get(i);
  await get(32);
  expect(computed).toBe(33);
  await get(0);
  expect(computed).toBe(34);
});
