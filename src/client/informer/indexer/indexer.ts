import type { Keyed } from "../delta-fifo/delta-fifo.ts";
import { type IndexFunction, KeySet, ObjectIndex } from "./object-index.ts";

/** Index functions by the name of their index. */
export type Indexers<T extends Keyed> = Readonly<Record<string, IndexFunction<T>>>;

/** The read-only side of an Indexer, whose objects an informer maintains. */
export type ReadonlyIndexer<T extends Keyed> = Omit<Indexer<T>, "set" | "delete" | "replace">;

/**
 * Objects by key, and by the values of any number of indexes. The cost of a lookup is in proportion to its result.
 * Results are in key order (by the bytes of the keys in UTF-8).
 *
 * If an index function throws, a change has no effect.
 */
export class Indexer<T extends Keyed> {
  #objects = new Map<string, T>();
  #keys = new KeySet();
  #indexes = new Map<string, ObjectIndex<T>>();

  /** Creates an empty indexer. `indexers` are the index functions by name. */
  constructor(indexers: Indexers<T> = {}) {
    this.addIndexers(indexers);
  }

  /** Number of objects. */
  get size(): number {
    return this.#objects.size;
  }

  /** Returns the object; undefined if it does not exist. */
  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  /** Whether the object exists. */
  has(key: string): boolean {
    return this.#objects.has(key);
  }

  /** Iterates over all keys, in key order. The iterator is valid until the next change. */
  keys(): Iterable<string> {
    return this.#keys.inOrder();
  }

  /** Returns all objects, in key order. */
  list(): T[] {
    return this.#objectsOf(this.#keys);
  }

  /** Adds or replaces an object. Throws an IndexError. */
  set(object: T): void {
    const { key } = object;
    const indexes = [...this.#indexes.values()];
    const values = indexes.map((index) => index.valuesOf(object));
    for (const [at, index] of indexes.entries()) index.set(key, values[at] ?? []);
    this.#objects.set(key, object);
    this.#keys.add(key);
  }

  /** Deletes an object. Returns whether it existed. */
  delete(key: string): boolean {
    for (const index of this.#indexes.values()) index.delete(key);
    this.#keys.delete(key);
    return this.#objects.delete(key);
  }

  /** Replaces all objects in one step. Throws an IndexError. */
  replace(objects: Iterable<T>): void {
    const others = new Indexer<T>();
    for (const [name, index] of this.#indexes) others.#indexes.set(name, index.emptied());
    for (const object of objects) others.set(object);
    this.#objects = others.#objects;
    this.#keys = others.#keys;
    this.#indexes = others.#indexes;
  }

  /**
   * Adds indexes over the current and all later objects. Throws a TypeError if an index of the same name exists, or
   * an IndexError; then none is added.
   */
  addIndexers(indexers: Indexers<T>): void {
    const added = Object.entries(indexers).map(([name, valuesOf]) => {
      if (this.#indexes.has(name)) {
        throw new TypeError(`The index ${JSON.stringify(name)} already exists. Use another name.`);
      }
      return new ObjectIndex(name, valuesOf);
    });
    for (const index of added) {
      for (const key of this.#keys.inOrder()) {
        const object = this.#objects.get(key);
        if (object !== undefined) index.set(key, index.valuesOf(object));
      }
    }
    for (const index of added) this.#indexes.set(index.name, index);
  }

  /** The names of all indexes. */
  get indexNames(): string[] {
    return [...this.#indexes.keys()];
  }

  /**
   * Returns the objects that have this value in an index, in key order. Throws a TypeError if the index does not
   * exist.
   */
  byIndex(name: string, value: string): T[] {
    return this.#objectsOf(this.#index(name).keysOf(value));
  }

  /** Returns the keys of the objects that have this value in an index, in key order. Throws as `byIndex`. */
  indexKeys(name: string, value: string): string[] {
    return [...this.#index(name).keysOf(value).inOrder()];
  }

  /** Returns all values of an index, without duplicates and in no particular order. Throws as `byIndex`. */
  indexValues(name: string): string[] {
    return this.#index(name).values();
  }

  /**
   * Returns the objects that share a value in an index with `object`, without duplicates and in key order. `object`
   * need not be in the indexer. Throws as `byIndex`, or an IndexError.
   */
  index(name: string, object: T): T[] {
    const index = this.#index(name);
    const keys = new KeySet();
    for (const value of index.valuesOf(object)) {
      for (const key of index.keysOf(value).inOrder()) keys.add(key);
    }
    return this.#objectsOf(keys);
  }

  #index(name: string): ObjectIndex<T> {
    const index = this.#indexes.get(name);
    if (index !== undefined) return index;
    const known = [...this.#indexes.keys()].map((other) => JSON.stringify(other)).join(", ");
    throw new TypeError(
      `There is no index ${JSON.stringify(name)}, only ${known || "(none)"}. Add it with addIndexers.`,
    );
  }

  #objectsOf(keys: KeySet): T[] {
    const objects: T[] = [];
    for (const key of keys.inOrder()) {
      const object = this.#objects.get(key);
      if (object !== undefined) objects.push(object);
    }
    return objects;
  }
}
