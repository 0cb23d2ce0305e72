import type { Clock } from "../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { Fifo } from "../../base/fifo.ts";

/** Default maximum of releases that wait. A call has two, of what it holds and of its count: all of one connection. */
const defaultMaxWaiting = 20_000;

/**
 * Releases what ended calls hold, in the event loop's time slices. Node.js announces the end of all calls at once that
 * were reset in one read, or whose connection has closed. Releasing the watch, the charges and the counts of one takes
 * some 10 us, so that of 5,000 would hold the event loop for 50 ms. The stream itself is closed by then: nothing is sent
 * on it any more.
 */
export class CallClosings implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #maxWaiting: number;
  readonly #waiting = new Fifo<() => void>();

  constructor(clock: Clock, maxWaiting: number = defaultMaxWaiting) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
    this.#maxWaiting = maxWaiting;
  }

  /** Number of releases that wait. */
  get size(): number {
    return this.#waiting.length;
  }

  /**
   * Calls `release`, which must not throw: at once while none waits and this turn's slice is not over, otherwise in order
   * in later turns.
   */
  add(release: () => void): void {
    if (this.#waiting.length === 0 && !this.#turns.isOver) {
      release();
      return;
    }
    this.#waiting.push(release);
    if (this.#waiting.length > this.#maxWaiting) this.#waiting.shift()?.();
    this.#turns.schedule(this);
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    do this.#waiting.shift()?.();
    while (this.#waiting.length > 0 && this.#clock.now() < until);
    return this.#waiting.length > 0;
  }
}
