import { compareKeys } from "../../../model/key-order.ts";

/**
 * A set of keys that can be listed in key order. Order is made when it is asked for, at a cost in
 * proportion to the listing itself: what has been put in order once stays so, and sorting what is nearly in
 * order takes one pass.
 */
export class KeySet {
  #keys = new Set<string>();
  /** No key sorts after this one, as long as `#isOrdered`. */
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

  /** In key order. Not to be held over a change. */
  inOrder(): ReadonlySet<string> {
    if (this.#isOrdered) return this.#keys;
    const sorted = [...this.#keys].sort(compareKeys);
    this.#keys = new Set(sorted);
    this.#last = sorted.at(-1);
    this.#isOrdered = true;
    return this.#keys;
  }
}
