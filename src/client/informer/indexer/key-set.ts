import { compareKeys } from "../../../model/key-order.ts";

/**
 * A set of keys that can be listed in key order. It is sorted on demand, at a cost in proportion to the list: the
 * sorted order is kept, and sorting an almost sorted set takes one pass.
 */
export class KeySet {
  #keys = new Set<string>();
  /** The last key in key order, while `#isOrdered`. */
  #last: string | undefined;
  #isOrdered = true;

  get size(): number {
    return this.#keys.size;
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  add(key: string): void {
    if (this.#isOrdered && !this.#keys.has(key)) {
      if (this.#last === undefined || compareKeys(this.#last, key) < 0) this.#last = key;
      else this.#isOrdered = false;
    }
    this.#keys.add(key);
  }

  delete(key: string): void {
    this.#keys.delete(key);
  }

  /** Returns the keys in key order. Valid until the next change. */
  inOrder(): ReadonlySet<string> {
    if (this.#isOrdered) return this.#keys;
    const sorted = [...this.#keys].sort(compareKeys);
    this.#keys = new Set(sorted);
    this.#last = sorted.at(-1);
    this.#isOrdered = true;
    return this.#keys;
  }
}
