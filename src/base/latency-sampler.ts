import type { Clock } from "./clock.ts";

/** Between these, in milliseconds, is the time from one sample to the next. */
const minGapMs = 5;
const maxGapMs = 20;
/** Maximum number of batches of which one is sampled. */
const maxStride = 4_096;

/**
 * Records how old some of many batches are: all while there are few, and about 100 a second while there are many, each time
 * after the same number of others. So a batch that is not sampled costs a subtraction, also where there are millions per
 * second.
 */
export class LatencySampler {
  readonly #clock: Clock;
  readonly #record: (latencyMs: number) => void;
  /** One batch of this many is sampled, and how many are left until the next one. */
  #stride = 1;
  #left = 1;
  #sampledAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, record: (latencyMs: number) => void) {
    this.#clock = clock;
    this.#record = record;
  }

  /** A batch has reached the stage. `arrivedAt`: when it arrived, in the clock's milliseconds. */
  reached(arrivedAt: number): void {
    if (--this.#left > 0) return;
    const now = this.#clock.now();
    const gap = now - this.#sampledAt;
    if (gap < minGapMs) this.#stride = Math.min(maxStride, this.#stride * 2);
    else if (gap > maxGapMs) this.#stride = Math.max(1, this.#stride >>> 1);
    this.#left = this.#stride;
    this.#sampledAt = now;
    this.#record(now - arrivedAt);
  }
}
