/** Exponential backoff with jitter, so that clients that failed together do not retry together. */
export interface BackoffBounds {
  /** Maximum of the first pause, in milliseconds. */
  readonly initialMs: number;
  /** Maximum of any pause, in milliseconds. */
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

  /** The next pause in milliseconds: a random value between half of the bound and the bound. */
  next(): number {
    const { initialMs, maxMs } = this.#bounds;
    const bound = Math.min(maxMs, initialMs * 2 ** Math.min(this.#failures, 30));
    this.#failures++;
    return bound * (0.5 + this.#random() / 2);
  }

  /** Starts again from the first pause, after a success. */
  reset(): void {
    this.#failures = 0;
  }
}
