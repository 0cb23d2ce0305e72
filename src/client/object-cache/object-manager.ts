import { checkKey } from "../../storage/checks.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { ObjectCache } from "./object-cache.ts";

/** Options of an ObjectManager, for consumers of type `C` and objects with values of type `T`. */
export interface ObjectManagerOptions<C, T> {
  /** The cache that holds the objects. It may have other references. */
  readonly cache: ObjectCache<T>;
  /** Returns the identity of a consumer, which must stay the same when the consumer changes: its name, for example. */
  readonly consumerId: (consumer: C) => string;
  /** Returns the keys of all objects that a consumer needs. Duplicates are ignored. */
  readonly referencedKeys: (consumer: C) => Iterable<string>;
}

/**
 * Keeps the objects current that a set of consumers refers to: for pods, for example, their ConfigMaps. From its
 * registration to its unregistration, a consumer holds one reference to each object that it needs. It corresponds to
 * the kubelet's cache-based object manager.
 */
export class ObjectManager<C, T> {
  readonly #options: ObjectManagerOptions<C, T>;
  /** The referenced keys by consumer id. Stored here, since the consumer may change after its registration. */
  readonly #keys = new Map<string, ReadonlySet<string>>();

  constructor(options: ObjectManagerOptions<C, T>) {
    this.#options = options;
  }

  /** Number of registered consumers. */
  get consumers(): number {
    return this.#keys.size;
  }

  /**
   * Adds references to all objects that `consumer` needs. If it is already registered, its former references are
   * deleted afterwards, so that the watches of objects that it still needs continue. Throws INVALID_REQUEST for an
   * invalid key, and what `referencedKeys` throws; no reference has changed then.
   */
  registerConsumer(consumer: C): void {
    const { cache, consumerId, referencedKeys } = this.#options;
    const id = consumerId(consumer);
    const keys = new Set(referencedKeys(consumer));
    for (const key of keys) checkKey(key);
    for (const key of keys) cache.addReference(key);
    this.#releaseReferences(id);
    this.#keys.set(id, keys);
  }

  /** Deletes all references of `consumer`. No effect if it is not registered. */
  unregisterConsumer(consumer: C): void {
    const id = this.#options.consumerId(consumer);
    this.#releaseReferences(id);
    this.#keys.delete(id);
  }

  /** The same as ObjectCache.get. */
  get(
    key: string,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TypedObject<T>> {
    return this.#options.cache.get(key, options);
  }

  #releaseReferences(id: string): void {
    for (const key of this.#keys.get(id) ?? []) this.#options.cache.deleteReference(key);
  }
}
