import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";

/**
 * The part of a lease's length that is not relied on, for clocks of different speed and for the time that a timer is late:
 * one percent.
 */
const marginRatio = 0.01;

/**
 * A lease that this client keeps alive. It is held until it is lost or released, and never again after that.
 *
 * The store ends a lease no earlier than its length after it granted or renewed it, which was later than the request for
 * that was sent. So until that moment plus the length, less one percent, no other client can have what is attached to it,
 * whatever the network does. `isHeld` compares with that deadline each time, so it is right also directly after the process
 * was stopped; `signal` follows as soon as timers run. Not covered: a clock that is more than one percent slower than the
 * store's, and the time between the check and the effect of what is done next. A fencing token covers both.
 */
export class Lease {
  readonly id: bigint;
  /** Its length as granted, in milliseconds. */
  readonly ttlMs: number;
  readonly #clock: Clock;
  readonly #ended = new AbortController();
  #renewedAt: number;
  #deadline = 0;
  #timer: Timer | undefined;

  /** `sentAt`: the time just before the request was sent that granted it. */
  constructor(id: bigint, ttlMs: number, sentAt: number, clock: Clock) {
    this.id = id;
    this.ttlMs = ttlMs;
    this.#clock = clock;
    this.#renewedAt = sentAt;
    this.renewed(sentAt, ttlMs);
  }

  /** Whether it can't have ended. Once false, it stays false. */
  get isHeld(): boolean {
    if (!this.#ended.signal.aborted && this.#clock.now() >= this.#deadline) this.#expire();
    return !this.#ended.signal.aborted;
  }

  /** Aborted when it is lost or released; the reason is the error that says why. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * When the last request was sent that renewed it, by the clock.
   * @internal
   */
  get renewedAt(): number {
    return this.#renewedAt;
  }

  /**
   * It lasts for `ttlMs` from `sentAt` on at least.
   * @internal
   */
  renewed(sentAt: number, ttlMs: number): void {
    if (this.#ended.signal.aborted) return;
    const deadline = sentAt + Math.min(ttlMs, this.ttlMs) * (1 - marginRatio);
    this.#renewedAt = Math.max(this.#renewedAt, sentAt);
    this.#deadline = Math.max(this.#deadline, deadline);
    this.#timer ??= this.#setTimer();
  }

  /**
   * Ends it. Idempotent.
   * @internal
   */
  end(why: Error): void {
    this.#timer?.cancel();
    this.#ended.abort(why);
  }

  #setTimer(): Timer {
    const leftMs = Math.min(maxTimerMs, Math.max(0, this.#deadline - this.#clock.now()));
    return this.#clock.setTimeout(() => {
      // Renewals do not set it again each time.
      if (this.isHeld) this.#timer = this.#setTimer();
    }, leftMs);
  }

  #expire(): void {
    this.end(leaseLost(this.id, `it was not renewed within its length, ${this.ttlMs} ms`));
  }
}

/** `why` is a clause. */
export function leaseLost(id: bigint, why: string, cause?: unknown): WatchFanoutError {
  const message = `The lease ${id} may have ended: ${why}. What was attached to it may be deleted: grant another one.`;
  return new WatchFanoutError("LEASE_NOT_FOUND", message, { cause });
}

/**
 * The system's time, and the time during which the machine was suspended. A monotonic clock of Linux stands still then, while
 * that of the store does not; so the time of day is looked at, too: what it has advanced more than the monotonic one is added. A time
 * of day that is set forward therefore ends leases early, which is safe; one that is set back has no effect.
 */
export function countingSuspension(clock: Clock, timeOfDay: () => number = Date.now): Clock {
  let ahead = Number.NEGATIVE_INFINITY;
  const now = (): number => {
    const monotonic = clock.now();
    ahead = Math.max(ahead, timeOfDay() - monotonic);
    return monotonic + ahead;
  };
  const { setTimeout, setImmediate } = clock;
  return { now, setTimeout, setImmediate };
}
