/**
 * Chance that can be repeated: the same seed yields the same choices (mulberry32, as published by Tommy
 * Ettinger, public domain).
 */
export class Seeded {
  readonly seed: number;
  #state: number;

  constructor(seed: number) {
    this.seed = seed >>> 0;
    this.#state = this.seed;
  }

  /** A number from 0 to below 1. */
  readonly next = (): number => {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };

  /** A whole number from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(of: readonly T[]): T {
    const chosen = of[this.between(0, of.length - 1)];
    if (chosen === undefined) throw new RangeError("There is nothing to choose from.");
    return chosen;
  }

  /** One of the names, each as often as its weight says. */
  pickWeighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
    const all = Object.entries<number>(weights) as [Name, number][];
    let left = this.next() * all.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [name, weight] of all) {
      left -= weight;
      if (left < 0) return name;
    }
    return this.pick(all)[0];
  }

  /** Chance of its own for one part, so that what that part draws leaves the others' draws as they are. */
  fork(): Seeded {
    return new Seeded(Math.floor(this.next() * 2 ** 32));
  }
}

/** The seed in FAULTS_SEED, or `byDefault`: a failure is repeated by the seed that it printed. */
export function seedOr(byDefault: number): number {
  const said = process.env["FAULTS_SEED"];
  return said === undefined || said === "" ? byDefault : Number(said);
}
