import { abortable } from "../../../base/abort.ts";
import type { Clock, Timer } from "../../../base/clock.ts";
import type { EventHandler, EventHandlerRegistration } from "./event-handler.ts";
import { HandlerQueue, type Notification } from "./handler-queue.ts";
import { HandlerError, InformerStopped } from "./informer-errors.ts";

/** For how long handlers are called until the event loop gets its turn, in milliseconds. */
const sliceMs = 5;

export interface RegistrationOptions<T> {
  readonly handler: EventHandler<T>;
  readonly name: string;
  readonly queueSize: number;
  readonly queueBytes: number;
  readonly resync: boolean;
  readonly clock: Clock;
  /** Whether all of the first state has been told to `notify`. */
  readonly isInitialListComplete: () => boolean;
  /** Must not throw. */
  readonly onError: (error: HandlerError) => void;
  /** Told how long each call took, in milliseconds. */
  readonly onCalled: (ms: number) => void;
  /** `ended` resolves when the call that is being made is over. */
  readonly onRemoved: (registration: HandlerRegistration<T>, ended: Promise<void>) => void;
}

/** A handler with its queue, and who calls it: one call at a time, each in a turn of its own choosing. */
export class HandlerRegistration<T> implements EventHandlerRegistration {
  readonly name: string;
  readonly resync: boolean;
  readonly #options: RegistrationOptions<T>;
  readonly #queue: HandlerQueue<T>;
  /** What begins the next round of calls. */
  #round: Timer | undefined;
  /** Resolves when the round that is under way is over; undefined: there is none. */
  #running: Promise<void> | undefined;
  #isCallingInitial = false;
  #isRemoved = false;
  #hasSynced = false;
  readonly #synced = Promise.withResolvers<void>();
  /** Resolves when nothing waits and nothing is called. */
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(options: RegistrationOptions<T>) {
    this.#options = options;
    this.name = options.name;
    this.resync = options.resync;
    this.#queue = new HandlerQueue(options.queueSize, options.queueBytes);
    // Not everyone waits for it.
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

  /** All that there is now, each with what comes of it until it is told. */
  notifyState(notifications: Iterable<Notification<T>>): void {
    if (this.#isRemoved) return;
    for (const notification of notifications) this.#queue.pushCoalesced(notification);
    this.#wake();
  }

  /** Looks whether it has synced. To be called when the first state is complete. */
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
      this.#round?.cancel();
      this.#round = undefined;
      this.#synced.reject(new InformerStopped(`The handler ${this.name} was removed.`));
      this.#options.onRemoved(this, this.#running ?? Promise.resolve());
      this.#settle();
    }
    return abortable(this.#running ?? Promise.resolve(), signal);
  }

  /** Resolves when all that waits has been told. */
  drain(): Promise<void> {
    if (this.#isIdle) return Promise.resolve();
    this.#drained ??= Promise.withResolvers();
    return this.#drained.promise;
  }

  get #isIdle(): boolean {
    return this.#running === undefined && this.#queue.length === 0;
  }

  #settle(): void {
    if (!this.#isIdle) return;
    this.#drained?.resolve();
    this.#drained = undefined;
  }

  #wake(): void {
    if (this.#round !== undefined || this.#running !== undefined) return;
    this.#round = this.#options.clock.setImmediate(() => {
      this.#round = undefined;
      // Set before the first call, which may itself ask for the end of all calls.
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#running = promise;
      void this.#run().finally(() => {
        this.#running = undefined;
        resolve();
        if (this.#queue.length > 0) this.#wake();
        this.#settle();
      });
    });
  }

  /** Calls until nothing waits or the time of this round is up. Never rejects. */
  async #run(): Promise<void> {
    const { clock, onCalled } = this.#options;
    const until = clock.now() + sliceMs;
    let now = clock.now();
    while (now < until) {
      const notification = this.#queue.shift();
      // The last one of the first state may have come to nothing while it waited.
      if (notification === undefined) return this.checkSynced();
      this.#isCallingInitial = notification.isInInitialList;
      const begun = now;
      try {
        const answer = this.#call(notification);
        if (isThenable(answer)) await answer;
      } catch (error) {
        this.#options.onError(new HandlerError(this.name, notification.key, error));
      }
      now = clock.now();
      onCalled(now - begun);
      this.#isCallingInitial = false;
      // Also where it was no initial one: the last of these may have come to nothing while this was called.
      this.checkSynced();
    }
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

function isThenable(answer: unknown): answer is PromiseLike<unknown> {
  return (
    typeof answer === "object" &&
    answer !== null &&
    "then" in answer &&
    typeof answer.then === "function"
  );
}
