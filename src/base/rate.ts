import type { Clock } from "./clock.ts";

/** A token bucket: an average rate, with a burst. */
export class Rate {
  readonly #clock: Clock;
  readonly perSecond: number;
  readonly #burst: number;
  #left: number;
  #since: number;

  /** `burst` is what may be taken at once. Default: what one second allows. */
  constructor(clock: Clock, perSecond: number, burst: number = perSecond) {
    this.#clock = clock;
    this.perSecond = perSecond;
    this.#burst = burst;
    this.#left = burst;
    this.#since = clock.now();
  }

  /** Takes one if there is one left. Returns whether there was. */
  take(): boolean {
    this.#refill();
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }

  /** Takes `count`, whether or not they are left: what has been done already. */
  charge(count: number): void {
    this.#refill();
    this.#left -= count;
  }

  /** Whether more was charged than the rate allows so far. */
  get isExceeded(): boolean {
    if (this.#left >= 0) return false;
    this.#refill();
    return this.#left < 0;
  }

  /** When `count` more can be taken, in milliseconds from now; 0: at once. */
  waitMs(count: number): number {
    this.#refill();
    return Math.max(0, Math.ceil(((count - this.#left) / this.perSecond) * 1_000));
  }

  /** Whether nothing was taken for so long that a new one would be the same. */
  get isFull(): boolean {
    this.#refill();
    return this.#left >= this.#burst;
  }

  #refill(): void {
    const now = this.#clock.now();
    const gained = ((now - this.#since) / 1_000) * this.perSecond;
    this.#left = Math.min(this.#burst, this.#left + gained);
    this.#since = now;
  }
}
