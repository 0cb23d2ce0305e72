import type { Keyed } from "../delta-fifo/delta.ts";
import { KeySet } from "./key-set.ts";

/**
 * The values that an object is found by in one index: one, several, or none. Depends on nothing but the object,
 * and changes nothing of it.
 */
export type IndexFunction<T extends Keyed> = (object: T) => string | Iterable<string> | undefined;

const noKeys = new KeySet();

/** One index: which objects have which value. */
export class ObjectIndex<T extends Keyed> {
  readonly name: string;
  readonly #valuesOf: IndexFunction<T>;
  readonly #keysByValue = new Map<string, KeySet>();
  /** What each object was filed under, so that it is found there again whatever has become of it. */
  readonly #valuesByKey = new Map<string, readonly string[]>();

  constructor(name: string, valuesOf: IndexFunction<T>) {
    this.name = name;
    this.#valuesOf = valuesOf;
  }

  /** An index of the same kind without anything in it. */
  emptied(): ObjectIndex<T> {
    return new ObjectIndex(this.name, this.#valuesOf);
  }

  /** Each value once. Throws an IndexError if the function throws, or gives what is no text. */
  valuesOf(object: T): readonly string[] {
    try {
      const given = this.#valuesOf(object);
      // A text is an iterable of its characters, too, which is never what is meant.
      if (typeof given === "string") return [given];
      const values = [...new Set(given)];
      const wrong = values.find((value) => typeof value !== "string");
      if (wrong === undefined) return values;
      throw new TypeError(`It gave a ${typeof wrong}, and a value has to be a string.`);
    } catch (error) {
      throw new IndexError(this.name, object.key, error);
    }
  }

  /** The values that are in use, in no particular order. */
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

/** An index function failed: it is to be mended, and nothing was changed. */
export class IndexError extends Error {
  override readonly name = "IndexError";
  readonly index: string;
  readonly key: string;

  constructor(index: string, key: string, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(
      `The index function ${JSON.stringify(index)} failed at ${JSON.stringify(key)}: ${why} Nothing was changed.`,
      { cause },
    );
    this.index = index;
    this.key = key;
  }
}
