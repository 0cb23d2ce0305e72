import { setImmediate as nextTurn } from "node:timers/promises";
import type { Timer } from "../src/base/clock.ts";
import { ManualClock, ManualTimer } from "../src/testing/manual-clock.ts";

/** More callbacks than this in one run mean that a callback schedules itself endlessly. */
const maxCallbacks = 100_000;

/** A clock that holds immediates as well: they run, as timers do, only when a test lets them. */
export class FakeClock extends ManualClock {
  readonly #immediates: ManualTimer[] = [];

  setImmediate(callback: () => void): Timer {
    const timer = new ManualTimer(callback, this.time, this.#immediates);
    this.#immediates.push(timer);
    return timer;
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
    const end = this.time + ms;
    this.runImmediates();
    for (let fired = 0; this.fireNext(end); fired++) {
      if (fired === maxCallbacks) throw endless("timers");
      this.runImmediates();
    }
    this.moveTo(end);
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
    const end = this.time + ms;
    await this.settle();
    for (let fired = 0; this.fireNext(end); fired++) {
      if (fired === maxCallbacks) throw endless("timers");
      await this.settle();
    }
    this.moveTo(end);
  }
}

function endless(what: string): Error {
  return new Error(
    `${maxCallbacks} ${what} ran and more were left: one schedules itself endlessly.`,
  );
}
