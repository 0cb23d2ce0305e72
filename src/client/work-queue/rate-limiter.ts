import { type Clock, systemClock } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";

/**
 * Says how long something that failed waits for its next try. An `item` is what tells the queue's keys apart:
 * the key itself, or what the queue's `keyOf` makes of it.
 */
export interface RateLimiter {
  /** Counts one more failure of `item`, and gives the delay before it is tried again, in milliseconds. */
  when(item: unknown): number;
  /** `item` went well, or is given up: its failures count no more. */
  forget(item: unknown): void;
  /** How often `item` has failed since it was last forgotten, where that is known; else 0. */
  numRequeues(item: unknown): number;
}

/** As many items as a work queue may know keys. */
const defaultMaxItems = 1_000_000;

/**
 * A delay for each item that doubles with each of its failures. Holds a number for each item that has failed
 * and was not forgotten since: who gives an item up has to say so. Whoever does not is bounded by `maxItems`:
 * beyond that, the item that has not failed for longest is forgotten.
 */
export class ItemExponentialFailureRateLimiter implements RateLimiter {
  readonly #baseDelayMs: number;
  readonly #maxDelayMs: number;
  readonly #maxItems: number;
  /** The one that has not failed for longest comes first. */
  readonly #failures = new Map<unknown, number>();

  /**
   * The delay after the first failure, and the longest one, both in milliseconds, and how many items are known at
   * most. Throws INVALID_REQUEST.
   */
  constructor(baseDelayMs: number, maxDelayMs: number, maxItems: number = defaultMaxItems) {
    checkAbove0("baseDelayMs", baseDelayMs);
    checkAbove0("maxDelayMs", maxDelayMs);
    checkAbove0("maxItems", maxItems);
    this.#maxItems = maxItems;
    this.#baseDelayMs = baseDelayMs;
    this.#maxDelayMs = maxDelayMs;
  }

  when(item: unknown): number {
    const failures = this.numRequeues(item);
    this.#failures.delete(item);
    this.#failures.set(item, failures + 1);
    if (this.#failures.size > this.#maxItems) this.#forgetOldest();
    return Math.min(this.#maxDelayMs, this.#baseDelayMs * 2 ** failures);
  }

  forget(item: unknown): void {
    this.#failures.delete(item);
  }

  numRequeues(item: unknown): number {
    return this.#failures.get(item) ?? 0;
  }

  #forgetOldest(): void {
    for (const item of this.#failures.keys()) {
      this.#failures.delete(item);
      return;
    }
  }
}

export interface BucketOptions {
  /** How many items go through in a second, in the long run. */
  readonly perSecond: number;
  /** How many may go through at once after a while without any. At least 1. */
  readonly burst: number;
  readonly clock?: Clock | undefined;
}

/** One token bucket for all items together. It does not know them apart, so there is nothing to forget. */
export class BucketRateLimiter implements RateLimiter {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #burstMs: number;
  /**
   * When the bucket will be full again, on the clock: one number says how full it is, and whoever takes a
   * token moves it by the time that a token takes to come (the generic cell rate algorithm, ITU-T I.371).
   */
  #fullAt = Number.NEGATIVE_INFINITY;

  /** Throws INVALID_REQUEST of a rate that lets nothing through. */
  constructor(options: BucketOptions) {
    checkAbove0("perSecond", options.perSecond);
    if (!(options.burst >= 1)) {
      throw invalidRequest("burst", `burst is ${options.burst}: at least 1 has to go through.`);
    }
    this.#clock = options.clock ?? systemClock;
    this.#intervalMs = 1_000 / options.perSecond;
    this.#burstMs = options.burst * this.#intervalMs;
  }

  when(_item: unknown): number {
    const now = this.#clock.now();
    this.#fullAt = Math.max(this.#fullAt, now) + this.#intervalMs;
    return Math.max(0, this.#fullAt - this.#burstMs - now);
  }

  forget(_item: unknown): void {}

  numRequeues(_item: unknown): number {
    return 0;
  }
}

/** Several limiters as one: each is asked each time, and the longest delay holds. */
export class MaxOfRateLimiter implements RateLimiter {
  readonly #limiters: readonly RateLimiter[];

  constructor(...limiters: readonly RateLimiter[]) {
    this.#limiters = limiters;
  }

  when(item: unknown): number {
    return this.#limiters.reduce((longest, each) => Math.max(longest, each.when(item)), 0);
  }

  forget(item: unknown): void {
    for (const each of this.#limiters) each.forget(item);
  }

  numRequeues(item: unknown): number {
    return this.#limiters.reduce((most, each) => Math.max(most, each.numRequeues(item)), 0);
  }
}

/**
 * What a controller needs where nothing else is known, with the numbers that client-go has for it: 5 ms after
 * an item's first failure, doubling up to 1,000 s; and all items together 10 a second, 100 at once.
 */
export function defaultControllerRateLimiter(clock: Clock = systemClock): RateLimiter {
  return new MaxOfRateLimiter(
    new ItemExponentialFailureRateLimiter(5, 1_000_000),
    new BucketRateLimiter({ perSecond: 10, burst: 100, clock }),
  );
}

function checkAbove0(field: string, value: number): void {
  if (value > 0 && Number.isFinite(value)) return;
  throw invalidRequest(field, `${field} is ${value}: it has to be a number above 0.`);
}
