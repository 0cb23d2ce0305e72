import type { TypedObject } from "../../values/typed-object.ts";
import type { DeletedFinalStateUnknown } from "../delta-fifo/delta.ts";

/**
 * What is told of an informer's objects. Of each object: that it is there, then each change, then that it is
 * gone, never out of turn. A call that returns a promise is waited for before the next one is made; one that
 * throws or rejects is reported, and counts as made.
 *
 * Objects are shared with everyone else and must not be changed.
 */
export interface EventHandler<T> {
  /** `isInInitialList`: it was there already when the handler or the informer began. */
  onAdd?(object: TypedObject<T>, isInInitialList: boolean): unknown;
  /**
   * `before` is what this handler was told last. It is `object` itself when nothing has changed (a resync). An
   * object that was deleted and made anew in between has another `createRevision`.
   */
  onUpdate?(before: TypedObject<T>, object: TypedObject<T>): unknown;
  /**
   * With the object as it last was, or as it was last seen if it went while nobody was looking: `lastKnown(object)` is
   * the object in both cases.
   */
  onDelete?(object: TypedObject<T> | DeletedFinalStateUnknown<TypedObject<T>>): unknown;
  /**
   * Takes the place of each of the others that is not there, with the key: for who looks only at what is, as a
   * controller does.
   *
   *     informer.addEventHandler({ onChange: (key) => queue.add(key) });
   */
  onChange?(key: string): unknown;
}

export interface EventHandlerOptions {
  /** What it is called in errors and metrics. Default: "handler-1" and so on. */
  readonly name?: string | undefined;
  /**
   * How many notifications wait one by one for the handler. If more come, then what waits beyond that is
   * folded by key: the handler then hears of an object's newest state, and not of those before. Default 10,000.
   */
  readonly queueSize?: number | undefined;
  /** How many bytes of objects, as they are stored, these may keep; beyond that they are folded too. Default 64 MiB. */
  readonly queueBytes?: number | undefined;
  /** Whether it takes part in resyncs. Default true. */
  readonly resync?: boolean | undefined;
}

/** A handler that was added to an informer. */
export interface EventHandlerRegistration {
  readonly name: string;
  /** Whether it has been told of every object of the first state, and each of these calls is over. */
  readonly hasSynced: boolean;
  /** How many notifications wait for it. */
  readonly pending: number;
  /** How many notifications it was spared, as newer ones took their place, since it did not keep up. */
  readonly coalescedCount: number;
  /**
   * Resolves once it has synced. Rejects with the signal's reason, or with an InformerStopped if the handler
   * is removed or the informer stopped before.
   */
  waitForSync(signal?: AbortSignal): Promise<void>;
  /**
   * Removes the handler: no call is made any more. Resolves when the one that is being made, if any, is over;
   * rejects with the signal's reason if that comes first. Harmless when called twice. A handler that calls this
   * must not wait for it: that would be to wait for itself.
   */
  remove(signal?: AbortSignal): Promise<void>;
}
