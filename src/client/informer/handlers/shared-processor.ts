import type { Clock } from "../../../base/clock.ts";
import type { TypedObject } from "../../values/typed-object.ts";
import { additionOf, type Notification } from "./handler-queue.ts";
import {
  type EventHandler,
  type EventHandlerOptions,
  HandlerRegistration,
} from "./handler-registration.ts";
import type { HandlerError } from "./informer-errors.ts";

const defaultQueueSize = 10_000;

/** Default for the queues of an informer and of its handlers, in bytes of objects as they are stored. */
export const defaultQueueBytes = 64 * 1024 ** 2;

interface SharedProcessorOptions {
  readonly clock: Clock;
  /** Whether the whole initial list has been passed to `distribute`. */
  readonly isInitialListComplete: () => boolean;
  /** Must not throw. */
  readonly onError: (error: HandlerError) => void;
  /** Called with the name of the handler and the duration of the call, in milliseconds. */
  readonly onCalled: (handler: string, ms: number) => void;
}

/** The handlers of an informer: passes each notification on to all of them. */
export class SharedProcessor<T> {
  readonly #options: SharedProcessorOptions;
  /** With their owners. */
  readonly #registrations = new Map<HandlerRegistration<T>, object>();
  /** Resolves when the last calls of all removed handlers have ended. */
  #ended: Promise<void> = Promise.resolve();
  #added = 0;

  constructor(options: SharedProcessorOptions) {
    this.#options = options;
  }

  get registrations(): readonly HandlerRegistration<T>[] {
    return [...this.#registrations.keys()];
  }

  /** Resolves when the last calls of all handlers that were removed so far have ended. */
  get ended(): Promise<void> {
    return this.#ended;
  }

  /** Adds a handler that is first called for each of `objects`. No call is made before this returns. */
  add(
    handler: EventHandler<T>,
    options: EventHandlerOptions,
    objects: readonly TypedObject<T>[],
    owner: object,
  ): HandlerRegistration<T> {
    const { clock, isInitialListComplete, onError, onCalled } = this.#options;
    const { name = `handler-${++this.#added}` } = options;
    const registration = new HandlerRegistration<T>({
      ...{ handler, name, clock, isInitialListComplete, onError },
      queueSize: options.queueSize ?? defaultQueueSize,
      queueBytes: options.queueBytes ?? defaultQueueBytes,
      resync: options.resync ?? true,
      onCalled: (ms) => onCalled(name, ms),
      onRemoved: (removed, ended) => {
        this.#registrations.delete(removed);
        this.#await(ended);
      },
    });
    this.#registrations.set(registration, owner);
    registration.notifyState(objects.map((object) => additionOf(object, true)));
    registration.checkSynced();
    return registration;
  }

  /** `isSync`: the object has not changed (a resync), so only handlers with `resync` are notified. */
  distribute(notification: Notification<T>, isSync: boolean): void {
    for (const registration of this.#registrations.keys()) {
      if (!isSync || registration.resync) registration.notify(notification);
    }
  }

  /** Must be called when the initial list is complete. */
  checkSynced(): void {
    for (const registration of this.registrations) registration.checkSynced();
  }

  /** Resolves when the handlers have been called for everything that is queued now. */
  async drain(): Promise<void> {
    await Promise.all(this.registrations.map((registration) => registration.drain()));
  }

  /** Removes the handlers of an owner. Resolves when their calls in progress have ended. */
  async removeOf(owner: object, signal: AbortSignal | undefined): Promise<void> {
    const own = [...this.#registrations].filter((entry) => entry[1] === owner);
    await Promise.all(own.map(([registration]) => registration.remove(signal)));
  }

  removeAll(): void {
    for (const registration of this.registrations) this.#await(registration.remove());
  }

  /** One chained promise, because handlers may be added and removed indefinitely. */
  #await(ended: Promise<void>): void {
    this.#ended = Promise.all([this.#ended, ended]).then(() => {});
  }
}
