import { messageOf } from "../../../base/errors.ts";
import { compareKeys } from "../../../model/key-order.ts";
import type { Keyed } from "../delta-fifo/delta-fifo.ts";

/**
 * Returns the values of an object in one index: one, several, or none. The result must depend on the object alone,
 * and the object must not be modified.
 */
export type IndexFunction<T extends Keyed> = (object: T) => string | Iterable<string> | undefined;

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

const noKeys = new KeySet();

/** One index: the keys of the objects that have each value. */
export class ObjectIndex<T extends Keyed> {
  readonly name: string;
  readonly #valuesOf: IndexFunction<T>;
  readonly #keysByValue = new Map<string, KeySet>();
  /** The values of each object when it was indexed, by key, so that a later delete finds them. */
  readonly #valuesByKey = new Map<string, readonly string[]>();

  constructor(name: string, valuesOf: IndexFunction<T>) {
    this.name = name;
    this.#valuesOf = valuesOf;
  }

  /** Creates an empty index with the same name and function. */
  emptied(): ObjectIndex<T> {
    return new ObjectIndex(this.name, this.#valuesOf);
  }

  /**
   * Returns the values without duplicates. Throws an IndexError if the function throws or returns anything but
   * strings.
   */
  valuesOf(object: T): readonly string[] {
    try {
      const given = this.#valuesOf(object);
      // A string is also an iterable, of its characters, which is never intended.
      if (typeof given === "string") return [given];
      const values = [...new Set(given)];
      const wrong = values.find((value) => typeof value !== "string");
      if (wrong === undefined) return values;
      throw new TypeError(`It returned a ${typeof wrong}, but a value must be a string.`);
    } catch (error) {
      throw new IndexError(this.name, object.key, error);
    }
  }

  /** The values that objects have, in no particular order. */
  values(): string[] {
    return [...this.#keysByValue.keys()];
  }

  keysOf(value: string): KeySet {
    return this.#keysByValue.get(value) ?? noKeys;
  }

  set(key: string, values: readonly string[]): void {
    const before = this.#valuesByKey.get(key);
    if (before !== undefined) {
      if (isSame(before, values)) return;
      this.delete(key);
    }
    if (values.length === 0) return;
    this.#valuesByKey.set(key, values);
    for (const value of values) {
      let keys = this.#keysByValue.get(value);
      if (keys === undefined) {
        keys = new KeySet();
        this.#keysByValue.set(value, keys);
      }
      keys.add(key);
    }
  }

  delete(key: string): void {
    for (const value of this.#valuesByKey.get(key) ?? []) {
      const keys = this.#keysByValue.get(value);
      keys?.delete(key);
      if (keys?.size === 0) this.#keysByValue.delete(value);
    }
    this.#valuesByKey.delete(key);
  }
}

function isSame(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((value, i) => value === other[i]);
}

/** An index function failed, so a change of the Indexer had no effect. `cause` is what the function threw. */
export class IndexError extends Error {
  override readonly name = "IndexError";
  /** The name of the index. */
  readonly index: string;
  /** The key of the object. */
  readonly key: string;

  constructor(index: string, key: string, cause: unknown) {
    super(
      `The index function ${JSON.stringify(index)} failed at ${JSON.stringify(key)}: ${messageOf(cause)} Nothing was changed.`,
      { cause },
    );
    this.index = index;
    this.key = key;
  }
}
