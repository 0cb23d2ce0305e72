import type { TypedObject } from "../../values/typed-object.ts";
import type { DeletedFinalStateUnknown } from "../delta-fifo/delta.ts";

/**
 * Callbacks for the changes of an informer's objects. For each object the calls are in order: it exists, then its
 * changes, then its deletion. A call that returns a promise is awaited before the next one. A call that throws or
 * rejects is reported and not repeated.
 *
 * Objects are shared with other readers and must not be modified.
 */
export interface EventHandler<T> {
  /**
   * Called for an object that is new to this handler. `isInInitialList`: it existed when the handler was added or the
   * informer synced.
   */
  onAdd?(object: TypedObject<T>, isInInitialList: boolean): unknown;
  /**
   * Called for a change. `before` is the state of the previous call of this handler; it is `object` itself if nothing
   * has changed (a resync). An object that was deleted and created again in between has another `createRevision`.
   */
  onUpdate?(before: TypedObject<T>, object: TypedObject<T>): unknown;
  /**
   * Called for a deletion, with the last state of the object, or with the last known one if the deletion was detected
   * by a relist. `lastKnown(object)` returns the object in both cases.
   */
  onDelete?(object: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>>): unknown;
  /**
   * Fallback for any callback that is not defined; receives only the key, which is what a controller needs.
   *
   *     informer.addEventHandler({ onChange: (key) => queue.add(key) });
   */
  onChange?(key: string): unknown;
}

/** Options of `SharedInformer.addEventHandler`. */
export interface EventHandlerOptions {
  /** The name in errors and metrics. Default: "handler-1" and so on. */
  readonly name?: string | undefined;
  /**
   * Maximum number of notifications that are queued one by one. Beyond it, notifications are coalesced by key: the
   * handler is called with the latest state of an object and skips intermediate ones. Default 10,000.
   */
  readonly queueSize?: number | undefined;
  /**
   * Maximum bytes of objects, as stored, that these notifications retain; beyond it they are coalesced too. Default
   * 64 MiB.
   */
  readonly queueBytes?: number | undefined;
  /** Whether the handler is called in resyncs. Default true. */
  readonly resync?: boolean | undefined;
}

/** A handler that was added to an informer. */
export interface EventHandlerRegistration {
  /** The name in errors and metrics. */
  readonly name: string;
  /** Whether the handler has been called for every object of the initial list, and all these calls have ended. */
  readonly hasSynced: boolean;
  /** Number of queued notifications. */
  readonly pending: number;
  /** Number of notifications that were coalesced because the handler did not keep up. */
  readonly coalescedCount: number;
  /**
   * Resolves when the handler has synced. Rejects with the signal's reason, or with an InformerStopped if the handler
   * is removed or the informer stopped before.
   */
  waitForSync(signal?: AbortSignal): Promise<void>;
  /**
   * Removes the handler: no further call is made. Resolves when the call in progress has ended; rejects with the
   * signal's reason if that is aborted first. Idempotent. A handler that calls this must not await it, since that
   * would wait for itself.
   */
  remove(signal?: AbortSignal): Promise<void>;
}
