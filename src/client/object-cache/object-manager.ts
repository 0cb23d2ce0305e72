import { checkKey } from "../../storage/checks.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { ObjectCache } from "./object-cache.ts";

export interface ObjectManagerOptions<C, T> {
  /** Which objects are taken from. Others may refer to objects in it too. */
  readonly cache: ObjectCache<T>;
  /** What tells consumers apart, and stays the same when one changes: a name, for example. */
  readonly consumerId: (consumer: C) => string;
  /** The keys of all objects that a consumer needs, as it is now. One may come more than once. */
  readonly referencedKeys: (consumer: C) => Iterable<string>;
}

/**
 * Keeps the objects current that consumers refer to, whatever a consumer is: of a pod, for example, its
 * ConfigMaps. Each consumer holds one reference to each object that it needs, from when it is registered until
 * it is unregistered.
 */
export class ObjectManager<C, T> {
  readonly #options: ObjectManagerOptions<C, T>;
  /** What each consumer refers to, by its id. Kept apart from the consumer, who may change meanwhile. */
  readonly #keys = new Map<string, ReadonlySet<string>>();

  constructor(options: ObjectManagerOptions<C, T>) {
    this.#options = options;
  }

  /** How many consumers are registered. */
  get consumers(): number {
    return this.#keys.size;
  }

  /**
   * Refers to all objects that `consumer` needs now. If it was registered before, then what it no longer needs
   * is let go after that, so that the watch of what it still needs goes on. Throws INVALID_REQUEST of what can't
   * be a key, and whatever `referencedKeys` throws; nothing has changed then.
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

  /** Lets go of all that `consumer` was registered with. Harmless if it is not registered. */
  unregisterConsumer(consumer: C): void {
    const id = this.#options.consumerId(consumer);
    this.#releaseReferences(id);
    this.#keys.delete(id);
  }

  /** As ObjectCache.get does. */
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
