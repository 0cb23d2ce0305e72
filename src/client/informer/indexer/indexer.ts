import type { Keyed } from "../delta-fifo/delta.ts";
import { KeySet } from "./key-set.ts";
import { type IndexFunction, ObjectIndex } from "./object-index.ts";

/** Index functions by the names of their indexes. */
export type Indexers<T extends Keyed> = Readonly<Record<string, IndexFunction<T>>>;

/** An Indexer for those who look things up: others keep its objects. */
export type ReadonlyIndexer<T extends Keyed> = Omit<Indexer<T>, "set" | "delete" | "replace">;

/**
 * Objects by key, and by whatever else its index functions say. What is looked up is found, not searched for:
 * a lookup costs as much as it answers. Answers are in key order (see `compareKeys`).
 *
 * Every change is made wholly or, where an index function throws, not at all.
 */
export class Indexer<T extends Keyed> {
  #objects = new Map<string, T>();
  #keys = new KeySet();
  #indexes = new Map<string, ObjectIndex<T>>();

  constructor(indexers: Indexers<T> = {}) {
    this.addIndexers(indexers);
  }

  get size(): number {
    return this.#objects.size;
  }

  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  has(key: string): boolean {
    return this.#objects.has(key);
  }

  /** In key order. The iterator is not to be used any more after a change. */
  keys(): Iterable<string> {
    return this.#keys.inOrder();
  }

  /** All objects, in key order. */
  list(): T[] {
    return this.#objectsOf(this.#keys);
  }

  /** Adds the object, or puts it in the place of the one with its key. Throws an IndexError. */
  set(object: T): void {
    const { key } = object;
    const indexes = [...this.#indexes.values()];
    const values = indexes.map((index) => index.valuesOf(object));
    for (const [at, index] of indexes.entries()) index.set(key, values[at] ?? []);
    this.#objects.set(key, object);
    this.#keys.add(key);
  }

  /** Whether there was such an object. */
  delete(key: string): boolean {
    for (const index of this.#indexes.values()) index.delete(key);
    this.#keys.delete(key);
    return this.#objects.delete(key);
  }

  /** These objects in the place of all that are there, in one step. Throws an IndexError. */
  replace(objects: Iterable<T>): void {
    const others = new Indexer<T>();
    for (const [name, index] of this.#indexes) others.#indexes.set(name, index.emptied());
    for (const object of objects) others.set(object);
    this.#objects = others.#objects;
    this.#keys = others.#keys;
    this.#indexes = others.#indexes;
  }

  /**
   * Adds indexes, over the objects that are there and those that will be. Throws a TypeError if there is an
   * index of such a name already, or an IndexError; none is added then.
   */
  addIndexers(indexers: Indexers<T>): void {
    const added = Object.entries(indexers).map(([name, valuesOf]) => {
      if (this.#indexes.has(name)) {
        throw new TypeError(`There is an index ${JSON.stringify(name)} already. Use another name.`);
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

  /** The names of the indexes. */
  get indexNames(): string[] {
    return [...this.#indexes.keys()];
  }

  /** The objects that have this value in an index, in key order. Throws a TypeError if there is no such index. */
  byIndex(name: string, value: string): T[] {
    return this.#objectsOf(this.#index(name).keysOf(value));
  }

  /** The keys of the objects that have this value in an index, in key order. Throws as `byIndex`. */
  indexKeys(name: string, value: string): string[] {
    return [...this.#index(name).keysOf(value).inOrder()];
  }

  /** The values that objects have in an index, each once and in no particular order. Throws as `byIndex`. */
  indexValues(name: string): string[] {
    return this.#index(name).values();
  }

  /**
   * The objects that have a value in common with `object` in an index, each once and in key order. It need not
   * be one that is here. Throws as `byIndex`, or an IndexError.
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
      `There is no index ${JSON.stringify(name)}, only ${known || "none at all"}. Add it with addIndexers.`,
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
