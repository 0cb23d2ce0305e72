import { expect, test } from "vitest";
import { killAtRandom } from "./kill.ts";

test("A process that is killed while it commits leaves every commit that it has reported, and none in part", async () => {
  const { kills, kept } = await killAtRandom(4, 200);
  expect(kills).toBe(4);
  expect(kept).toBeGreaterThan(4);
});
