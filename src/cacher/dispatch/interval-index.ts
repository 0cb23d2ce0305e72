import { compareKeys } from "../../model/key-order.ts";
import type { KeyInterval } from "../../storage/storage.ts";

interface Entry<T> {
  readonly interval: KeyInterval;
  readonly value: T;
}

/**
 * Finds the intervals that a key is in, in logarithmic time and in time for each that is found.
 *
 * The intervals are sorted by their beginning. The middle of each part of this order is the root of a binary tree of the
 * part, and knows the largest end in it. The first search after a change computes these ends again.
 */
export class IntervalIndex<T> {
  readonly #entries: Entry<T>[] = [];
  /** By the index of the root of each part: its largest end. Undefined as an end: up to the last key. */
  #ends: (string | undefined)[] | undefined;

  get size(): number {
    return this.#entries.length;
  }

  /** Adds an interval that is not there yet. */
  add(interval: KeyInterval, value: T): void {
    this.#entries.splice(this.#firstFrom(interval.from), 0, { interval, value });
    this.#ends = undefined;
  }

  /** Idempotent. */
  delete({ from }: KeyInterval, value: T): void {
    for (let i = this.#firstFrom(from); this.#entries[i]?.interval.from === from; i++) {
      if (this.#entries[i]?.value !== value) continue;
      this.#entries.splice(i, 1);
      this.#ends = undefined;
      return;
    }
  }

  /** Appends the values of the intervals that `key` is in to `found`. Returns the number of comparisons. */
  find(key: string, found: T[]): number {
    this.#ends ??= this.#largestEnds();
    return this.#search(key, 0, this.#entries.length, this.#ends, found);
  }

  #search(
    key: string,
    low: number,
    high: number,
    ends: readonly (string | undefined)[],
    found: T[],
  ): number {
    if (low >= high) return 0;
    const root = (low + high) >>> 1;
    if (!isBefore(key, ends[root])) return 1;
    const { interval, value } = this.#entries[root] as Entry<T>;
    const compared = 1 + this.#search(key, low, root, ends, found);
    if (compareKeys(key, interval.from) < 0) return compared;
    if (isBefore(key, interval.to)) found.push(value);
    return compared + this.#search(key, root + 1, high, ends, found);
  }

  #largestEnds(): (string | undefined)[] {
    const ends: (string | undefined)[] = [];
    const largest = (low: number, high: number): string | undefined => {
      const root = (low + high) >>> 1;
      let end = this.#entries[root]?.interval.to;
      if (low < root) end = later(end, largest(low, root));
      if (root + 1 < high) end = later(end, largest(root + 1, high));
      ends[root] = end;
      return end;
    };
    largest(0, this.#entries.length);
    return ends;
  }

  /** The index of the first interval that begins at `from` or after it. */
  #firstFrom(from: string): number {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const { interval } = this.#entries[middle] as Entry<T>;
      if (compareKeys(interval.from, from) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function isBefore(key: string, end: string | undefined): boolean {
  return end === undefined || compareKeys(key, end) < 0;
}

function later(one: string | undefined, other: string | undefined): string | undefined {
  if (one === undefined || other === undefined) return undefined;
  return compareKeys(one, other) < 0 ? other : one;
}
