import { describe, expect, it } from "vitest";
import { Seeded } from "./seeded.ts";

describe("Seeded chance", () => {
  it("is equal for equal seeds, and different for different ones", () => {
    const draws = (seed: number): number[] => {
      const random = new Seeded(seed);
      return Array.from({ length: 20 }, () => random.between(0, 1_000));
    };
    expect(draws(7)).toEqual(draws(7));
    expect(draws(7)).not.toEqual(draws(8));
  });

  it("draws every number between minimum and maximum, and no other", () => {
    const random = new Seeded(1);
    const drawn = new Set(Array.from({ length: 500 }, () => random.between(-1, 3)));
    expect([...drawn].sort((a, b) => a - b)).toEqual([-1, 0, 1, 2, 3]);
  });

  it("picks by weight", () => {
    const random = new Seeded(1);
    const counts = { often: 0, seldom: 0, never: 0 };
    for (let i = 0; i < 1_000; i++) {
      counts[random.pickWeighted({ often: 9, seldom: 1, never: 0 })]++;
    }
    expect(counts.never).toBe(0);
    expect(counts.seldom).toBeGreaterThan(50);
    expect(counts.seldom).toBeLessThan(200);
  });

  it("is not changed by draws of a generator that was split off", () => {
    const drawnBeside = (draws: number): number => {
      const random = new Seeded(3);
      const part = random.fork();
      for (let i = 0; i < draws; i++) part.next();
      return random.next();
    };
    expect(drawnBeside(10)).toBe(drawnBeside(0));
  });
});
