import type { Clock } from "./clock.ts";

/**
 * Bounds the log lines about one subject, such as one kind of failure: at most one per interval. Lines that are suppressed
 * are counted, and the next line has their number.
 */
export class LineLimit {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  #last = Number.NEGATIVE_INFINITY;
  #suppressed = 0;

  constructor(clock: Clock, intervalMs: number) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
  }

  /** Returns the number of lines that were suppressed before this one; undefined: this one is suppressed as well. */
  admit(): number | undefined {
    const now = this.#clock.now();
    if (now - this.#last < this.#intervalMs) {
      this.#suppressed++;
      return undefined;
    }
    const suppressed = this.#suppressed;
    this.#last = now;
    this.#suppressed = 0;
    return suppressed;
  }
}
