import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";

/** Interval of the checks, in milliseconds. */
const intervalMs = 1_000;

/** Number of calls that are checked between two yields. */
const callsPerStep = 64;

/** A call that is checked from time to time. */
export interface MaintainedCall {
  /** Called about once a second while the call is open, with the clock's time in milliseconds. */
  check(now: number): void;
}

/** Checks the open calls, with one timer for all of them. */
export class CallMaintenance<Call extends MaintainedCall> {
  readonly #clock: Clock;
  readonly #calls = new Set<Call>();
  /** The timer of the next check; undefined during a check, and without calls. */
  #timer: Timer | undefined;
  #isChecking = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of open calls. */
  get size(): number {
    return this.#calls.size;
  }

  [Symbol.iterator](): Iterator<Call> {
    return this.#calls.values();
  }

  add(call: Call): void {
    this.#calls.add(call);
    this.#setTimer();
  }

  /** Idempotent. */
  delete(call: Call): void {
    this.#calls.delete(call);
    if (this.#calls.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #setTimer(): void {
    if (this.#isChecking) return;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#isChecking = true;
      runInTimeSlices(this.#clock, this.#checkAll());
    }, intervalMs);
  }

  *#checkAll(): Generator<void, void, void> {
    let checked = 0;
    for (const call of this.#calls) {
      call.check(this.#clock.now());
      if (++checked % callsPerStep === 0) yield;
    }
    this.#isChecking = false;
    if (this.#calls.size > 0) this.#setTimer();
  }
}
