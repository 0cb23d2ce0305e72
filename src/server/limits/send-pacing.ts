import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import { FairQueue } from "../../base/fair-queue.ts";
import { Rate } from "../../base/rate.ts";
import type { Caller, CallOwner } from "./callers.ts";

/** How often streams that wait are looked at, in milliseconds. */
const intervalMs = 50;

/**
 * Bounds the bytes that are sent per second, of each caller and of all. Responses and batches are charged when they are
 * built, whole: nothing is counted per event. What is built is sent; while more was sent than a rate allows, the next
 * batches of streams are not read, and wait here. A stream that waits for long falls behind like one whose client is slow.
 */
export class SendPacing {
  readonly #clock: Clock;
  readonly #rate: Rate | undefined;
  /** The streams that wait. */
  readonly #waiting = new FairQueue<() => void>();
  #timer: Timer | undefined;

  /** `maxSendRate`: of all callers together, in bytes per second; 0: no limit. */
  constructor(clock: Clock, maxSendRate: number) {
    this.#clock = clock;
    this.#rate = maxSendRate === 0 ? undefined : new Rate(clock, maxSendRate);
  }

  /** Number of streams that wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Counts what is sent to a caller, in bytes. */
  charge({ caller }: CallOwner, bytes: number): void {
    caller.sendRate?.charge(bytes);
    this.#rate?.charge(bytes);
  }

  /** The rate that is exceeded; undefined: none, so more may be sent to the caller. */
  exceededBy({ sendRate }: Caller): Rate | undefined {
    if (sendRate?.isExceeded === true) return sendRate;
    return this.#rate?.isExceeded === true ? this.#rate : undefined;
  }

  /** Calls `resume` when further bytes may be sent to the owner, callers in rotation. The returned function stops the wait. */
  wait(owner: CallOwner, resume: () => void): () => void {
    this.#waiting.push(owner, resume);
    this.#setTimer();
    return () => this.#waiting.delete(owner, resume);
  }

  #setTimer(): void {
    this.#timer ??= this.#clock.setTimeout(
      () => runInTimeSlices(this.#clock, this.#resumeAll()),
      intervalMs,
    );
  }

  *#resumeAll(): Generator<void, void, void> {
    for (;;) {
      const next = this.#waiting.shift(this.#maySend);
      if (next === undefined) break;
      const [, resume] = next;
      resume();
      yield;
    }
    this.#timer = undefined;
    if (this.#waiting.size > 0) this.#setTimer();
  }

  readonly #maySend = (group: object): boolean => {
    const caller = group as Caller;
    return this.exceededBy(caller) === undefined;
  };
}
