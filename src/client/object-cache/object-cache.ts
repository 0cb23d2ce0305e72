import { type Clock, keepAliveClock, maxTimerMs } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { checkKey } from "../../storage/checks.ts";
import { ClosedError } from "../calls/closed-error.ts";
import type { Interruption } from "../calls/options.ts";
import { DecodeFailure, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { registerObjectCacheMetrics } from "./object-cache-metrics.ts";
import { WatchedObject, type WatchedObjectOptions } from "./watched-object.ts";

export interface ObjectCacheOptions<T> {
  readonly client: Pick<ClientCalls, "watch">;
  readonly resource: string;
  readonly codec: ValueCodec<T>;
  /**
   * Whether an object will never change again. Its watch is then ended, and it is served until the last
   * reference to it goes: neither a change nor its deletion is seen any more. Default: none is.
   */
  readonly isImmutable?: ((object: TypedObject<T>) => boolean) | undefined;
  /**
   * How long `get` waits for an object of which nothing is known yet, in milliseconds. Default 1,000; 0: not
   * at all.
   */
  readonly syncTimeoutMs?: number | undefined;
  /**
   * Told of what keeps an object from being current: a value that can't be decoded (a DecodeFailure), a watch
   * that has to begin anew or is refused, and what `isImmutable` throws. What was known goes on being served,
   * and watches are tried again for ever, unless the client was closed before the cache: all then end, which is told
   * once. Default: a warning of the process.
   */
  readonly onError?: ((error: Error, key: string) => void) | undefined;
  /** Told of watches that were cut off and go on where they were. Default: nobody is. */
  readonly onInterruption?: ((interruption: Interruption, key: string) => void) | undefined;
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
}

/**
 * Single objects of a resource, each kept current by a watch of its own for as long as anything refers to it:
 * what one needs that uses a few objects out of very many. All watches share the client's connections. Who
 * needs most of a resource, or to be told of changes, is better off with a SharedInformer.
 *
 *     await using cache = new ObjectCache({ client, resource: "configs", codec: jsonValues<Config>() });
 *     cache.addReference("ns-1/web");
 *     const { value } = await cache.get("ns-1/web");
 *
 * The first reference to a key begins its watch, and the last one that is deleted ends it. What is served is
 * some state that the object has had: the first is as new as any write that completed before the first
 * reference, and none is older than one before. While a watch is broken what is served grows old, however long
 * that takes. Only another history (an etcd that was restored) may take an object back.
 *
 * What was cut off goes on by itself, after pauses that grow and are never in step. Close it before its client.
 */
export class ObjectCache<T> {
  readonly #options: WatchedObjectOptions<T>;
  readonly #objects = new Map<string, WatchedObject<T>>();
  /** The watches that have not ended, those of objects included that nothing refers to any more. */
  readonly #running = new Set<Promise<void>>();
  readonly #unregisterMetrics: () => void;
  #undecodable = 0;
  #closed = false;
  #isClientClosed = false;

  /** Nothing is sent until the first reference. Throws INVALID_REQUEST of a time that is none. */
  constructor(options: ObjectCacheOptions<T>) {
    const { syncTimeoutMs = 1_000, onError = warn, onInterruption = () => {} } = options;
    if (!(syncTimeoutMs >= 0 && syncTimeoutMs <= maxTimerMs)) {
      throw invalidRequest(
        "syncTimeoutMs",
        `syncTimeoutMs is ${syncTimeoutMs}: it has to be from 0 up to ${maxTimerMs}.`,
      );
    }
    this.#options = {
      client: options.client,
      resource: options.resource,
      codec: options.codec,
      isImmutable: options.isImmutable ?? (() => false),
      syncTimeoutMs,
      clock: options.clock ?? keepAliveClock,
      random: options.random ?? Math.random,
      onError: (error, key) => {
        if (error instanceof DecodeFailure) this.#undecodable++;
        // All watches end of it, and nobody needs to be told more than once.
        if (error instanceof ClosedError && this.#isClientClosed) return;
        this.#isClientClosed ||= error instanceof ClosedError;
        tell(() => onError(error, key));
      },
      onInterruption: (interruption, key) => tell(() => onInterruption(interruption, key)),
    };
    this.#unregisterMetrics = registerObjectCacheMetrics(options.resource, this);
  }

  /** How many keys there are references to. */
  get size(): number {
    return this.#objects.size;
  }

  /** How many objects are watched: all that there are references to but those that are immutable. */
  get watching(): number {
    let watching = 0;
    for (const object of this.#objects.values()) if (object.watching) watching++;
    return watching;
  }

  /** How many values came that could not be decoded. */
  get undecodable(): number {
    return this.#undecodable;
  }

  /**
   * Refers to `key` once more. Waits for nothing: `get` does. Throws INVALID_REQUEST of what can't be a key, and
   * once the cache is closed.
   */
  addReference(key: string): void {
    if (this.#closed) throw closed();
    checkKey(key);
    const object = this.#objects.get(key) ?? this.#watch(key);
    object.references++;
  }

  /** Takes one reference to `key` back. Harmless where there is none. */
  deleteReference(key: string): void {
    const object = this.#objects.get(key);
    if (object === undefined) return;
    object.references--;
    if (object.references > 0) return;
    this.#objects.delete(key);
    object.release();
  }

  /**
   * The object as it was last known to be. Where nothing is known yet, waits for that as long as
   * `syncTimeoutMs` says. Rejects with
   *
   * - OBJECT_NOT_FOUND: there is no such object;
   * - NOT_READY: it is not known yet whether there is; or there is, and none of its values so far could be
   *   decoded. `cause` has the reason, if there is one;
   * - INVALID_REQUEST: nothing refers to `key`, or no longer does, or the cache is closed, or the client was before
   *   anything was known;
   * - the signal's reason, once that is aborted.
   */
  async get(
    key: string,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TypedObject<T>> {
    if (this.#closed) throw closed();
    const object = this.#objects.get(key);
    if (object === undefined) {
      throw invalidRequest(
        "key",
        `Nothing refers to ${JSON.stringify(key)}, so it is not watched: call addReference first.`,
      );
    }
    return object.get(options.signal);
  }

  /** Ends all watches, whatever refers to them, and resolves once nothing is left of them. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#unregisterMetrics();
    for (const object of this.#objects.values()) object.release();
    this.#objects.clear();
    await Promise.all(this.#running);
  }

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

/** What a listener throws is no reason to end a watch. */
function tell(listener: () => void): void {
  try {
    listener();
  } catch (error) {
    warn(error instanceof Error ? error : new Error(String(error)));
  }
}

function warn(error: Error): void {
  process.emitWarning(error);
}
