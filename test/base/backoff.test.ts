import { describe, expect, it } from "vitest";
import { Backoff, defaultBackoffBounds } from "../../src/base/backoff.ts";
import fc from "../property.ts";

function pauses(backoff: Backoff, count: number): number[] {
  return Array.from({ length: count }, () => backoff.next());
}

describe("Backoff", () => {
  it.each([
    ["the minimum", 0, [50, 100, 200, 400, 800, 1_600, 2_500, 2_500]],
    ["in the middle", 0.5, [75, 150, 300, 600, 1_200, 2_400, 3_750, 3_750]],
  ])("doubles its pauses up to the bound: %s", (_what, random, expected) => {
    const backoff = new Backoff(defaultBackoffBounds, () => random);
    expect(pauses(backoff, expected.length)).toEqual(expected);
  });

  it("draws the jitter again for each pause", () => {
    const draws = [0, 0.5, 0.25].values();
    const backoff = new Backoff({ initialMs: 100, maxMs: 100 }, () => draws.next().value ?? 0);
    expect(pauses(backoff, 3)).toEqual([50, 75, 62.5]);
  });

  it("starts again after a reset", () => {
    const backoff = new Backoff({ initialMs: 100, maxMs: 5_000 }, () => 0);
    pauses(backoff, 5);
    backoff.reset();
    expect(pauses(backoff, 2)).toEqual([50, 100]);
  });

  it("pauses for between half of the bound and the bound, after any number of failures", () => {
    const bounds = fc.record({
      initialMs: fc.integer({ min: 1, max: 10_000 }),
      maxMs: fc.integer({ min: 1, max: 60_000 }),
    });
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(bounds, random, (limits, drawn) => {
        const backoff = new Backoff(limits, () => drawn);
        for (const [failures, pause] of pauses(backoff, 2_000).entries()) {
          const bound = Math.min(limits.maxMs, limits.initialMs * 2 ** failures);
          expect(pause).toBeLessThanOrEqual(bound);
          expect(pause).toBeGreaterThanOrEqual(bound / 2);
        }
      }),
      { numRuns: 20 },
    );
  });
});
