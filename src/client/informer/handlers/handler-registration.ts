import type { Clock } from "../../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../../base/event-loop-turns.ts";
import { abortable, Condition } from "../../../base/wait.ts";
import type { TypedObject } from "../../values/typed-object.ts";
import type { DeletedFinalStateUnknown } from "../delta-fifo/delta-fifo.ts";
import { HandlerQueue, type Notification } from "./handler-queue.ts";
import { HandlerError, InformerStopped } from "./informer-errors.ts";

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

interface RegistrationOptions<T> {
  readonly handler: EventHandler<T>;
  readonly name: string;
  /** See EventHandlerOptions. */
  readonly queueSize: number;
  readonly queueBytes: number;
  readonly resync: boolean;
  readonly clock: Clock;
  /** Whether all objects of the initial list have been passed to `notify`. */
  readonly isInitialListComplete: () => boolean;
  /** Must not throw. */
  readonly onError: (error: HandlerError) => void;
  /** Called with the duration of each call, in milliseconds. */
  readonly onCalled: (ms: number) => void;
  /** `ended` resolves when the call in progress has ended. */
  readonly onRemoved: (registration: HandlerRegistration<T>, ended: Promise<void>) => void;
}

/**
 * A handler and its queue. The handler is called for one notification at a time, in the time slices that all
 * handlers on the event loop share.
 */
export class HandlerRegistration<T> implements EventHandlerRegistration, TurnWorker {
  readonly name: string;
  readonly resync: boolean;
  readonly #options: RegistrationOptions<T>;
  readonly #turns: EventLoopTurns;
  readonly #queue: HandlerQueue<T>;
  #isCalling = false;
  #isCallingInitial = false;
  #isRemoved = false;
  #hasSynced = false;
  readonly #synced = Promise.withResolvers<void>();
  /** Resolves when the call in progress has ended; undefined unless the handler is removed during a call. */
  #ended: PromiseWithResolvers<void> | undefined;
  /** Number of calls that have ended. */
  #endedCalls = 0;
  /** Notified after each call, and when it may be idle. */
  readonly #progress = new Condition();

  constructor(options: RegistrationOptions<T>) {
    this.#options = options;
    this.name = options.name;
    this.resync = options.resync;
    this.#turns = EventLoopTurns.of(options.clock);
    this.#queue = new HandlerQueue(options.queueSize, options.queueBytes);
    // A rejection is not unhandled if no caller waits for it.
    this.#synced.promise.catch(() => {});
  }

  get pending(): number {
    return this.#queue.length;
  }

  get coalescedCount(): number {
    return this.#queue.coalescedCount;
  }

  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  waitForSync(signal?: AbortSignal): Promise<void> {
    return abortable(this.#synced.promise, signal);
  }

  notify(notification: Notification<T>): void {
    if (this.#isRemoved) return;
    this.#queue.push(notification);
    this.#wake();
  }

  /** Enqueues the current state. Each object has one entry, with which its later changes are coalesced. */
  notifyState(notifications: Iterable<Notification<T>>): void {
    if (this.#isRemoved) return;
    for (const notification of notifications) this.#queue.pushCoalesced(notification);
    this.#wake();
  }

  /** Updates `hasSynced`. Must be called when the initial list becomes complete. */
  checkSynced(): void {
    if (this.#hasSynced || this.#isRemoved) return;
    if (this.#isCallingInitial || this.#queue.initial > 0) return;
    if (!this.#options.isInitialListComplete()) return;
    this.#hasSynced = true;
    this.#synced.resolve();
  }

  remove(signal?: AbortSignal): Promise<void> {
    if (!this.#isRemoved) {
      this.#isRemoved = true;
      this.#queue.clear();
      if (this.#isCalling) this.#ended = Promise.withResolvers();
      this.#synced.reject(new InformerStopped(`The handler ${this.name} was removed.`));
      this.#options.onRemoved(this, this.#ended?.promise ?? Promise.resolve());
      this.#progress.notify();
    }
    return abortable(this.#ended?.promise ?? Promise.resolve(), signal);
  }

  /** Resolves when the handler has been called for every notification that is queued now, and these calls have ended. */
  drain(): Promise<void> {
    const calls = this.#endedCalls + this.#queue.length + (this.#isCalling ? 1 : 0);
    return this.#progress.until(() => this.#isIdle || this.#endedCalls >= calls, {});
  }

  /** For `EventLoopTurns`. After a call that returned a promise, its end continues the queue. */
  work(until: number): boolean {
    return !this.#isCalling && this.#callUntil(until);
  }

  /** Whether the queue is empty and no call is in progress. */
  get #isIdle(): boolean {
    return !this.#isCalling && this.#queue.length === 0;
  }

  #wake(): void {
    if (!this.#isCalling && this.#queue.length > 0) this.#turns.schedule(this);
  }

  /**
   * Calls the handler until `until`, until the queue is empty, or until a call returns a promise. Returns whether
   * to continue in another turn.
   */
  #callUntil(until: number): boolean {
    const { clock } = this.#options;
    let now = clock.now();
    do {
      const notification = this.#queue.shift();
      if (notification === undefined) break;
      const begun = now;
      this.#isCalling = true;
      this.#isCallingInitial = notification.isInInitialList;
      try {
        const result = this.#call(notification);
        if (isThenable(result)) {
          void this.#awaitCall(result, notification.key, begun);
          return false;
        }
      } catch (error) {
        this.#options.onError(new HandlerError(this.name, notification.key, error));
      }
      now = clock.now();
      this.#endCall(now - begun);
    } while (now < until);
    if (this.#queue.length > 0) return true;
    // The last initial notification may have been coalesced to nothing while it was queued.
    this.checkSynced();
    this.#progress.notify();
    return false;
  }

  /** Waits for a call, then continues in what is left of the turn's slice. Never rejects. */
  async #awaitCall(result: PromiseLike<unknown>, key: string, begun: number): Promise<void> {
    try {
      await result;
    } catch (error) {
      this.#options.onError(new HandlerError(this.name, key, error));
    }
    this.#endCall(this.#options.clock.now() - begun);
    if (this.#queue.length === 0) this.#progress.notify();
    else if (this.#turns.isOver || this.#callUntil(this.#turns.sliceEnd)) this.#wake();
  }

  #endCall(ms: number): void {
    this.#isCalling = false;
    this.#isCallingInitial = false;
    this.#endedCalls++;
    if (this.#progress.waiting > 0) this.#progress.notify();
    this.#options.onCalled(ms);
    // Also after a later change: the last initial notification may have been coalesced to nothing during the call.
    this.checkSynced();
    this.#ended?.resolve();
  }

  #call({ key, before, after, deleted, isInInitialList }: Notification<T>): unknown {
    const { handler } = this.#options;
    if (after === undefined) {
      if (deleted === undefined) return undefined;
      return handler.onDelete === undefined ? handler.onChange?.(key) : handler.onDelete(deleted);
    }
    if (before === undefined) {
      if (handler.onAdd === undefined) return handler.onChange?.(key);
      return handler.onAdd(after, isInInitialList);
    }
    if (handler.onUpdate === undefined) return handler.onChange?.(key);
    return handler.onUpdate(before, after);
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === "object" &&
    value !== null &&
    "then" in value &&
    typeof value.then === "function"
  );
}
