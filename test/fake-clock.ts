import { setImmediate as nextTurn } from "node:timers/promises";
import { type Clock, maxTimerMs, type Timer } from "../src/base/clock.ts";

/** More callbacks than this in one run mean that a callback schedules itself endlessly. */
const maxCallbacks = 100_000;

/** A clock whose time passes only when a test advances it. It starts at 0. */
export class FakeClock implements Clock {
  readonly #timers: FakeTimer[] = [];
  readonly #immediates: FakeTimer[] = [];
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
    const timer = new FakeTimer(callback, this.#now + delayMs, this.#timers);
    // Behind those that are due at the same time: first set, first fired.
    const at = this.#timers.findIndex((other) => other.due > timer.due);
    this.#timers.splice(at === -1 ? this.#timers.length : at, 0, timer);
    return timer;
  }

  setImmediate(callback: () => void): Timer {
    const timer = new FakeTimer(callback, this.#now, this.#immediates);
    this.#immediates.push(timer);
    return timer;
  }

  /** How many timers are set and have neither fired nor been cancelled. */
  get pendingTimers(): number {
    return this.#timers.length;
  }

  get pendingImmediates(): number {
    return this.#immediates.length;
  }

  /**
   * Lets `ms` pass. Timers that fall due fire in the order of their times, those set meanwhile
   * included, each at its own time; no time passes while an immediate waits. Promises are not waited
   * for: where their callbacks set timers or immediates, use `elapse`.
   */
  advance(ms: number): void {
    const end = this.#now + ms;
    this.runImmediates();
    for (let fired = 0; this.#fireNext(end); fired++) {
      if (fired === maxCallbacks) throw endless("timers");
      this.runImmediates();
    }
    this.#now = end;
  }

  /** Runs all immediates, also those that they set themselves. */
  runImmediates(): void {
    for (let ran = 0; ; ran++) {
      const next = this.#immediates[0];
      if (next === undefined) return;
      if (ran === maxCallbacks) throw endless("immediates");
      next.fire();
    }
  }

  /** One turn of the event loop: runs the immediates that wait now, and not those that they set. */
  runTurn(): void {
    for (const waiting of [...this.#immediates]) waiting.fire();
  }

  /**
   * Runs immediates and lets promises run until neither is left. What waits for the outside (a
   * socket, a file) is not waited for.
   */
  async settle(): Promise<void> {
    for (let turns = 0; turns < maxCallbacks; turns++) {
      await nextTurn();
      if (this.#immediates.length === 0) return;
      this.runImmediates();
    }
    throw endless("immediates");
  }

  /** As `advance`, and settles before time advances and after each timer. */
  async elapse(ms: number): Promise<void> {
    const end = this.#now + ms;
    await this.settle();
    for (let fired = 0; this.#fireNext(end); fired++) {
      if (fired === maxCallbacks) throw endless("timers");
      await this.settle();
    }
    this.#now = end;
  }

  /** Fires the first timer that is due by `end`, at its own time, and says whether there was one. */
  #fireNext(end: number): boolean {
    const next = this.#timers[0];
    if (next === undefined || next.due > end) return false;
    this.#now = Math.max(this.#now, next.due);
    next.fire();
    return true;
  }
}

class FakeTimer implements Timer {
  readonly due: number;
  readonly #callback: () => void;
  readonly #queue: FakeTimer[];

  constructor(callback: () => void, due: number, queue: FakeTimer[]) {
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

function endless(what: string): Error {
  return new Error(
    `${maxCallbacks} ${what} ran and more were left: one schedules itself endlessly.`,
  );
}
