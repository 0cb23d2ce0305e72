import { type Clock, maxTimerMs, type Timer } from "../base/clock.ts";

/** The timers of a clock whose time passes only when a test advances it. It starts at 0. */
export abstract class ManualClock implements Clock {
  readonly #timers: ManualTimer[] = [];
  #now = 0;

  now(): number {
    return this.#now;
  }

  /** Throws a RangeError for a delay that Node's timers do not take, so that a test finds it. */
  setTimeout(callback: () => void, delayMs: number): Timer {
    // Beyond that Node.js calls back at once.
    if (!(delayMs >= 0 && delayMs <= maxTimerMs)) {
      throw new RangeError(`A delay is 0 to ${maxTimerMs} ms, not ${delayMs}.`);
    }
    const timer = new ManualTimer(callback, this.#now + delayMs, this.#timers);
    // Behind those that are due at the same time: first set, first fired.
    const at = this.#timers.findIndex((other) => other.due > timer.due);
    this.#timers.splice(at === -1 ? this.#timers.length : at, 0, timer);
    return timer;
  }

  abstract setImmediate(callback: () => void): Timer;

  /** The time without what a subclass adds in `now`. */
  protected get time(): number {
    return this.#now;
  }

  /** How many timers are set and have neither fired nor been cancelled. */
  get pendingTimers(): number {
    return this.#timers.length;
  }

  /** Fires the first timer that is due by `end`, at its own time, and says whether there was one. */
  protected fireNext(end: number): boolean {
    const next = this.#timers[0];
    if (next === undefined || next.due > end) return false;
    this.#now = Math.max(this.#now, next.due);
    next.fire();
    return true;
  }

  /** Lets time pass without firing timers. */
  protected moveTo(time: number): void {
    this.#now = time;
  }
}

/** A callback in a queue, until it fires or is cancelled. */
export class ManualTimer implements Timer {
  readonly due: number;
  readonly #callback: () => void;
  readonly #queue: ManualTimer[];

  constructor(callback: () => void, due: number, queue: ManualTimer[]) {
    this.#callback = callback;
    this.due = due;
    this.#queue = queue;
  }

  cancel(): void {
    const at = this.#queue.indexOf(this);
    if (at !== -1) this.#queue.splice(at, 1);
  }

  fire(): void {
    this.cancel();
    this.#callback();
  }
}
