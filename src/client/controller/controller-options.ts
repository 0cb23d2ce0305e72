import type { Clock } from "../../base/clock.ts";
import type { Lister } from "../informer/indexer/lister.ts";
import type { Informer } from "../informer/shared-use.ts";
import type { TypedResource } from "../typed/typed-resource.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { RateLimiter } from "../work-queue/rate-limiter.ts";

/**
 * Where a controller has objects from: the shared informer of a resource, or an informer with options or indexes of its own,
 * such as `pods.sharedInformer({ scope, indexers })`. The controller starts and stops it.
 */
export type ObjectSource<T> = TypedResource<T> | Informer<T>;

/** A change of an object of a source. */
export interface ObjectChange<T> {
  /** The key of the object. */
  readonly key: string;
  /** The last state that was delivered; undefined if the object is new. */
  readonly before: TypedObject<T> | undefined;
  /** The state now; undefined if the object was deleted. */
  readonly after: TypedObject<T> | undefined;
}

/** The objects of a controller, from memory. */
export interface ControllerListers {
  /** Returns the lister of a source of the controller. Throws INVALID_REQUEST for anything else. */
  lister<T>(source: ObjectSource<T>): Lister<T>;
}

/** Objects that belong to the objects of `for`, such as those that the controller writes. */
export interface OwnedObjects<T> {
  readonly source: ObjectSource<T>;
  /** Returns the key or the keys of the owners of an object. Called with the state before a change and that after it. */
  owner(object: TypedObject<T>): string | readonly string[] | undefined;
}

/** Objects that reconciles depend on. */
export interface WatchedObjects<T> {
  readonly source: ObjectSource<T>;
  /**
   * Returns the keys to reconcile after a change, or objects with these keys: those that depend on the state before, and
   * those that depend on the state after.
   */
  keys(
    change: ObjectChange<T>,
    listers: ControllerListers,
  ): Iterable<string | { readonly key: string }>;
}

/** What a reconcile has beside its key. */
export interface ReconcileContext<T> extends ControllerListers {
  /** Aborted when the controller stops, so that a reconcile can end early. To throw then is no failure. */
  readonly signal: AbortSignal;
  /**
   * The object of `for` with the key, in the last state that could be decoded; undefined if it does not exist, or has no such
   * state.
   */
  readonly object: TypedObject<T> | undefined;
}

/** The result of a reconcile that asks for another one. */
export interface Requeue {
  /** The key is reconciled again after this time, in milliseconds, or earlier after a change. Undefined: after a change. */
  readonly requeueAfterMs?: number | undefined;
}

/** The keys that this controller reconciles, of those that several members of a group share. */
export interface KeyShard {
  /** Whether the key is one of them now. */
  owns(key: string): boolean;
  /**
   * Calls the listener after each change of what `owns` returns, until the returned function is called. The listener's
   * promise resolves when no key that was lost is being reconciled any more: then another member may take those.
   */
  onChange(listener: () => Promise<void>): () => void;
  /**
   * The revision of the store at which this controller got the key: the owner before it has written at lower ones. The key is
   * reconciled once the sources have reached it. Undefined, or without this function: they need not.
   */
  ownedSince?(key: string): { readonly revision: number; readonly historyId: string } | undefined;
}

/** Options of `controller`. `Owned` and `Watched` are the types of the values of `owns` and `watches`, in their order. */
export interface ControllerOptions<
  T,
  Owned extends readonly unknown[],
  Watched extends readonly unknown[],
> {
  /** The name in metrics, spans and errors. Default: that of `for`. */
  readonly name?: string | undefined;
  /** The objects whose keys are reconciled, after each of their changes. */
  readonly for: ObjectSource<T>;
  /**
   * Objects that belong to those of `for`. A source alone: to the object with the same key. An object whose value can't be
   * decoded has its owner reconciled as well, by its last decoded state, if that takes more than its key.
   */
  readonly owns?: { readonly [I in keyof Owned]: ObjectSource<Owned[I]> | OwnedObjects<Owned[I]> };
  /** Other objects, and the keys that depend on them. */
  readonly watches?: { readonly [I in keyof Watched]: WatchedObjects<Watched[I]> };
  /**
   * Brings what belongs to a key to its desired state. Called by one worker at a time for each key. If it throws, the key is
   * reconciled again after the delay of the rate limiter.
   *
   * It never runs with listers that are older than a write that it has made for the same key before, by any client of the
   * service, nor older than its `shard` says: the controller waits for that.
   */
  reconcile(
    key: string,
    context: ReconcileContext<T>,
  ): Requeue | undefined | Promise<Requeue | undefined> | Promise<void>;
  /** Number of keys that are reconciled at the same time, at least 1. Default 1. */
  readonly workers?: number | undefined;
  /** Determines when a failed key is reconciled again. Default: `defaultControllerRateLimiter()`. */
  readonly rateLimiter?: RateLimiter | undefined;
  /** Maximum number of keys that are queued, delayed, reconciled, or left to other members. Default 1,000,000. */
  readonly maxKeys?: number | undefined;
  /** The keys that this controller reconciles, such as a ShardAssignment. Default: all. */
  readonly shard?: KeyShard | undefined;
  /** Maximum time for the reconciles in progress, and for the informers, to end at the stop, in milliseconds. Default 30,000. */
  readonly stopTimeoutMs?: number | undefined;
  /** Called once all sources have synced, before the first reconcile. */
  readonly onSynced?: (() => void) | undefined;
  /**
   * Called with what a reconcile throws, when its key is queued again; and with errors of the informers, such as a
   * DecodeFailure, with the key of the object. If it throws for a reconcile, the controller stops. Default: process warnings.
   */
  readonly onError?: ((error: unknown, key: string) => void) | undefined;
  /** Default: the system time, with timers that keep the process alive. */
  readonly clock?: Clock | undefined;
}
