import type { Clock, Timer } from "../../base/clock.ts";
import type { MemoryWatch } from "./memory-watch.ts";

/**
 * The open watches of the embedded store. They are notified of writes from an immediate, not from within the write. So an
 * exception of a listener can't fail a write that has been applied, a listener may write, and a burst of writes is read as one
 * batch.
 */
export class Watches {
  readonly #clock: Clock;
  /** Each with what is called after its end. */
  readonly #watches = new Map<MemoryWatch, () => void>();
  #notification: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Adds a watch, and notifies it soon. `onEnd` is called after its end. */
  add(watch: MemoryWatch, onEnd: () => void): void {
    this.#watches.set(watch, onEnd);
    this.notifySoon();
  }

  notifySoon(): void {
    if (this.#watches.size === 0) return;
    this.#notification ??= this.#clock.setImmediate(() => {
      this.#notification = undefined;
      this.#notify();
    });
  }

  /** Ends all of them. */
  end(error: Error): void {
    for (const watch of this.#watches.keys()) watch.end(error);
  }

  /** Notifies every watch that has something new, even if the listener of another one throws. */
  #notify(): void {
    const failures: unknown[] = [];
    for (const [watch, onEnd] of this.#watches) {
      try {
        watch.notify();
      } catch (error) {
        failures.push(error);
      }
      if (watch.ended === undefined) continue;
      this.#watches.delete(watch);
      onEnd();
    }
    if (failures.length > 0) throw new AggregateError(failures, "A watch's listener threw.");
  }
}
