/** How long to wait before trying again: longer after each failure, never in step with others. */
export interface BackoffBounds {
  /** The first pause at most, in milliseconds. */
  readonly initialMs: number;
  /** Any pause at most, in milliseconds. */
  readonly maxMs: number;
}

export const defaultBackoffBounds: BackoffBounds = { initialMs: 100, maxMs: 5_000 };

export class Backoff {
  readonly #bounds: BackoffBounds;
  readonly #random: () => number;
  #failures = 0;

  /** `random` yields numbers from 0 up to 1, as Math.random does. */
  constructor(bounds: BackoffBounds, random: () => number) {
    this.#bounds = bounds;
    this.#random = random;
  }

  /** The next pause in milliseconds: between half of the bound and all of it. */
  next(): number {
    const { initialMs, maxMs } = this.#bounds;
    const bound = Math.min(maxMs, initialMs * 2 ** Math.min(this.#failures, 30));
    this.#failures++;
    return bound * (0.5 + this.#random() / 2);
  }

  /** Begins anew, after something went well. */
  reset(): void {
    this.#failures = 0;
  }
}
