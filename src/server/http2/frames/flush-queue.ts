import type { Clock } from "../../../base/clock.ts";

/** Something with bytes to write. */
export interface Flushable {
  /** Writes what may be written now. Returns whether there is more that may be written at once. */
  flush(): boolean;
}

/**
 * Flushes connections once all that is sent to them in one go has been collected: at the end of the callback in which
 * they were added, so that the messages of all streams of a connection leave in one write. All of them are flushed
 * without a time slice. New events are not read meanwhile, so those that arrive share a message: a server at its limit
 * sends fewer and larger ones. What a flush adds has its turn in the next turn of the event loop.
 */
export class FlushQueue {
  readonly #clock: Clock;
  #waiting: Flushable[] = [];
  #isScheduled = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Add it once until it is flushed. */
  add(flushable: Flushable): void {
    this.#waiting.push(flushable);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    process.nextTick(this.#run);
  }

  readonly #run = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const flushable of waiting) if (flushable.flush()) this.#waiting.push(flushable);
    if (this.#waiting.length > 0) this.#clock.setImmediate(this.#run);
    else this.#isScheduled = false;
  };
}
