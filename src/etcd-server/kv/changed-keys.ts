import { compareKeys } from "../../model/key-order.ts";
import type { KeyInterval } from "../../storage/storage.ts";
import { isEmpty, type Keys } from "./key-interval.ts";

/** A set of keys and intervals of keys. To look for a key takes logarithmic time, and to add many between two looks linear time. */
export class ChangedKeys {
  readonly #keys = new Set<string>();
  /** In key order, without common keys. */
  #intervals: KeyInterval[] = [];
  /** Those that are not among `#intervals` yet. */
  #added: KeyInterval[] = [];

  add(keys: Keys): void {
    if ("key" in keys) this.#keys.add(keys.key);
    else if (!isEmpty(keys)) this.#added.push(keys);
  }

  addAll(other: ChangedKeys): void {
    for (const key of other.#keys) this.#keys.add(key);
    for (const interval of other.#intervals) this.#added.push(interval);
    for (const interval of other.#added) this.#added.push(interval);
  }

  has(key: string): boolean {
    if (this.#keys.has(key)) return true;
    this.#merge();
    let low = 0;
    let high = this.#intervals.length;
    // The last one that does not begin behind the key.
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareKeys((this.#intervals[middle] as KeyInterval).from, key) <= 0) low = middle + 1;
      else high = middle;
    }
    const interval = this.#intervals[low - 1];
    return interval !== undefined && reaches(interval, key);
  }

  #merge(): void {
    if (this.#added.length === 0) return;
    const all = [...this.#intervals, ...this.#added];
    all.sort((one, other) => compareKeys(one.from, other.from));
    this.#added = [];
    this.#intervals = [];
    for (const { from, to } of all) {
      const last = this.#intervals.at(-1);
      if (last === undefined || !reaches(last, from)) this.#intervals.push({ from, to });
      else if (to === undefined || !reaches(last, to)) {
        this.#intervals[this.#intervals.length - 1] = { from: last.from, to };
      }
    }
  }
}

/** Whether an interval ends behind a key. */
function reaches({ to }: KeyInterval, key: string): boolean {
  return to === undefined || compareKeys(key, to) < 0;
}
