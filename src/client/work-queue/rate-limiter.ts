import { type Clock, systemClock } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";

/**
 * Determines how long a failed item waits for its next attempt. An `item` is a key of the queue, or what the queue's
 * `keyOf` returns for it.
 */
export interface RateLimiter {
  /** Counts a failure of `item` and returns the delay before its next attempt, in milliseconds. */
  when(item: unknown): number;
  /** Resets the failures of `item`: it succeeded or is given up. */
  forget(item: unknown): void;
  /** Number of failures of `item` since it was last forgotten; 0 if the limiter does not count them. */
  numRequeues(item: unknown): number;
}

/** The same as the default bound of a work queue. */
const defaultMaxItems = 1_000_000;

/**
 * A delay per item that doubles with each failure. It stores a number for each item that has failed and was not
 * forgotten, so a caller that gives an item up must call `forget`. Beyond `maxItems`, the item whose last failure is
 * the oldest is forgotten.
 */
export class ItemExponentialFailureRateLimiter implements RateLimiter {
  readonly #baseDelayMs: number;
  readonly #maxDelayMs: number;
  readonly #maxItems: number;
  /** In the order of their last failure. */
  readonly #failures = new Map<unknown, number>();

  /**
   * `baseDelayMs` is the delay after the first failure, `maxDelayMs` the longest one, and `maxItems` the maximum
   * number of items. Throws INVALID_REQUEST if one of them is not above 0.
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

/** Options of a BucketRateLimiter. */
export interface BucketOptions {
  /** Sustained rate, in items per second. */
  readonly perSecond: number;
  /** Maximum number of items without a delay after an idle time, at least 1. */
  readonly burst: number;
  /** Default: the system time. */
  readonly clock?: Clock | undefined;
}

/** One token bucket for all items. It does not distinguish items, so `forget` has no effect and `numRequeues` is 0. */
export class BucketRateLimiter implements RateLimiter {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #burstMs: number;
  /**
   * When the bucket is full again, by the clock, in milliseconds. This one number holds its whole state: each token
   * that is taken adds the time in which one token is refilled (the generic cell rate algorithm, ITU-T I.371).
   */
  #fullAt = Number.NEGATIVE_INFINITY;

  /** Throws INVALID_REQUEST if `perSecond` is not above 0 or `burst` is below 1. */
  constructor(options: BucketOptions) {
    checkAbove0("perSecond", options.perSecond);
    if (!(options.burst >= 1)) {
      throw invalidRequest("burst", `burst is ${options.burst}: it must be at least 1.`);
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

/** Combines rate limiters: all count each failure, and the longest delay applies. */
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
 * The rate limiter for controllers, with the numbers of client-go: per item 5 ms after the first failure, doubling up
 * to 1,000 s; for all items together 10 per second, with bursts of 100.
 */
export function defaultControllerRateLimiter(clock: Clock = systemClock): RateLimiter {
  return new MaxOfRateLimiter(
    new ItemExponentialFailureRateLimiter(5, 1_000_000),
    new BucketRateLimiter({ perSecond: 10, burst: 100, clock }),
  );
}

function checkAbove0(field: string, value: number): void {
  if (value > 0 && Number.isFinite(value)) return;
  throw invalidRequest(field, `${field} is ${value}: it must be a number above 0.`);
}
