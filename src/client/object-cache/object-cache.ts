import { metrics } from "@opentelemetry/api";
import { type Clock, keepAliveClock, maxTimerMs } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { gauge, registerMetrics } from "../../base/metric-table.ts";
import { callListener, emitWarning } from "../../base/warning.ts";
import { checkKey } from "../../storage/checks.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { Interruption } from "../calls/options.ts";
import { DecodeFailure, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { WatchedObject, type WatchedObjectOptions } from "./watched-object.ts";

/** Options of an ObjectCache. */
export interface ObjectCacheOptions<T> {
  /**
   * The client, or a subscription of it. The watches share one stream: a subscription of this cache, or the given one. Close
   * the cache before it.
   */
  readonly client: Pick<ClientCalls, "watch" | "reachability" | "subscribe">;
  /** The name of the resource in the service. */
  readonly resource: string;
  /** Decodes the values. */
  readonly codec: ValueCodec<T>;
  /**
   * Returns whether an object will never change again. Its watch then ends, and the object is served until its last
   * reference is deleted; later changes and its deletion are not noticed. Default: no object is immutable.
   */
  readonly isImmutable?: ((object: TypedObject<T>) => boolean) | undefined;
  /**
   * How long `get` waits for the first state of an object, in milliseconds, from 0 (no wait) to 2^31 - 1. Default
   * 1,000.
   */
  readonly syncTimeoutMs?: number | undefined;
  /**
   * Called with an error that keeps an object from being current: a value that can't be decoded (a DecodeFailure), a
   * watch that must be started again or is refused, and what `isImmutable` throws. The last known state is still
   * served, and the watch is retried indefinitely. If the client is closed before the cache, all watches end, which
   * is reported once. Default: a process warning.
   */
  readonly onError?: ((error: Error, key: string) => void) | undefined;
  /** Called when a watch was interrupted and will be resumed. Default: ignored. */
  readonly onInterruption?: ((interruption: Interruption, key: string) => void) | undefined;
  /** Default: the system time, with timers that keep the process alive. */
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
}

/**
 * Caches single objects of a resource. Each object has a watch of its own while it has references, as in the
 * kubelet's watch-based object cache. It suits a consumer that needs a few objects of very many; use a SharedInformer
 * for most objects of a resource, or to be called on changes. All watches share one stream, as those of a Subscription.
 *
 *     await using cache = new ObjectCache({ client, resource: "configs", codec: jsonValues<Config>() });
 *     cache.addReference("ns-1/web");
 *     const { value } = await cache.get("ns-1/web");
 *
 * The first reference to a key starts its watch; deleting the last one ends it. The first state that is served
 * includes every write that completed before the first reference, and later states are never older than earlier ones.
 * While a watch is interrupted, the state becomes stale without a bound. Only a change of history (a restored etcd)
 * can bring back an older state.
 *
 * An interrupted watch is retried with exponential backoff and jitter. Close the cache before its client.
 */
export class ObjectCache<T> {
  readonly #options: WatchedObjectOptions<T>;
  readonly #objects = new Map<string, WatchedObject<T>>();
  /** The watches that have not ended, including those of objects without references. */
  readonly #running = new Set<Promise<void>>();
  readonly #unregisterMetrics: () => void;
  #undecodable = 0;
  #isClosed = false;
  #isClientClosed = false;

  /** Sends nothing before the first reference. Throws INVALID_REQUEST for a `syncTimeoutMs` that is out of range. */
  constructor(options: ObjectCacheOptions<T>) {
    const { syncTimeoutMs = 1_000, onInterruption = () => {} } = options;
    const { onError = (error: Error) => emitWarning(error) } = options;
    if (!(syncTimeoutMs >= 0 && syncTimeoutMs <= maxTimerMs)) {
      throw invalidRequest(
        "syncTimeoutMs",
        `syncTimeoutMs is ${syncTimeoutMs}: it must be from 0 to ${maxTimerMs}.`,
      );
    }
    const { client } = options;
    this.#options = {
      client: client.subscribe?.() ?? client,
      resource: options.resource,
      codec: options.codec,
      isImmutable: options.isImmutable ?? (() => false),
      syncTimeoutMs,
      clock: options.clock ?? keepAliveClock,
      random: options.random ?? Math.random,
      onError: (error, key) => {
        if (error instanceof DecodeFailure) this.#undecodable++;
        // All watches end with it, and one report is enough.
        if (error instanceof ClosedError && this.#isClientClosed) return;
        this.#isClientClosed ||= error instanceof ClosedError;
        callListener(() => onError(error, key));
      },
      onInterruption: (interruption, key) => callListener(() => onInterruption(interruption, key)),
    };
    this.#unregisterMetrics = registerObjectCacheMetrics(options.resource, this);
  }

  /** Number of keys with references. */
  get size(): number {
    return this.#objects.size;
  }

  /** Number of watched objects: all with references, except immutable ones. */
  get watching(): number {
    let watching = 0;
    for (const object of this.#objects.values()) if (object.watching) watching++;
    return watching;
  }

  /** Number of received values that could not be decoded. */
  get undecodable(): number {
    return this.#undecodable;
  }

  /**
   * Adds a reference to `key`, and starts its watch if it is the first. Does not wait for the state. Throws
   * INVALID_REQUEST if `key` is not a valid key or the cache is closed.
   */
  addReference(key: string): void {
    if (this.#isClosed) throw closed();
    checkKey(key);
    const object = this.#objects.get(key) ?? this.#watch(key);
    object.references++;
  }

  /** Deletes one reference to `key`, and ends its watch if it was the last. No effect if there is no reference. */
  deleteReference(key: string): void {
    const object = this.#objects.get(key);
    if (object === undefined) return;
    object.references--;
    if (object.references > 0) return;
    this.#objects.delete(key);
    object.release();
  }

  /**
   * Returns the last known state of the object. Waits up to `syncTimeoutMs` for the first state. Rejects with
   *
   * - OBJECT_NOT_FOUND: the object does not exist;
   * - NOT_READY: the first state is not known yet; or the object exists, and no value so far could be decoded.
   *   `cause` is the reason, if known;
   * - INVALID_REQUEST: `key` has no reference (any more), the cache is closed, or the client was closed before the
   *   first state was known;
   * - the signal's reason, when it is aborted.
   */
  async get(
    key: string,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TypedObject<T>> {
    if (this.#isClosed) throw closed();
    const object = this.#objects.get(key);
    if (object === undefined) {
      throw invalidRequest(
        "key",
        `Nothing refers to ${JSON.stringify(key)}, so it is not watched: call addReference first.`,
      );
    }
    return object.get(options.signal);
  }

  /** Ends all watches, regardless of references. Resolves when they have ended. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#unregisterMetrics();
    for (const object of this.#objects.values()) object.release();
    this.#objects.clear();
    await Promise.all(this.#running);
  }

  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #watch(key: string): WatchedObject<T> {
    const object = new WatchedObject(key, this.#options);
    this.#objects.set(key, object);
    const { ended } = object;
    this.#running.add(ended);
    ended.finally(() => this.#running.delete(ended));
    return object;
  }
}

function closed(): WatchFanoutError {
  return invalidRequest("key", "This object cache is closed.");
}

/**
 * Registers the metrics of a cache at the current global meter provider. Returns a function that removes them; until
 * it is called, the meter provider references the cache.
 */
export function registerObjectCacheMetrics(
  resource: string,
  cache: Pick<ObjectCache<never>, "size" | "watching">,
): () => void {
  return registerMetrics(metrics.getMeter("watch-fanout"), () => [[cache, { resource }]], {
    watch_fanout_client_object_cache_objects: gauge(
      "{object}",
      "Keys that have a reference.",
      ({ size }) => size,
    ),
    watch_fanout_client_object_cache_watches: gauge(
      "{watch}",
      "Objects that are watched, immutable ones excepted.",
      ({ watching }) => watching,
    ),
  });
}

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
