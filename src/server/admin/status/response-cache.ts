import type { Clock } from "../../../base/clock.ts";
import { Gate } from "../../../base/gate.ts";

/** How long a response is used for further requests, in milliseconds (below the interval of the viewers), and how many are kept. */
const keptMs = 900;
const maxKept = 32;
/** Number of responses that are computed at once, and of those that wait for that. */
const maxRunning = 2;
const maxWaiting = 16;

/** Too many different responses are being computed. */
export class TooManyRequests extends Error {
  override readonly name = "TooManyRequests";
}

interface Kept {
  /** When it was computed, in the clock's milliseconds; infinite while it is being computed. */
  at: number;
  readonly response: Promise<string>;
}

/** Computes a response once for all that request it within a second, and a bounded number of responses at once. */
export class ResponseCache {
  readonly #clock: Clock;
  /** By the query, in the order in which they were requested first. */
  readonly #kept = new Map<string, Kept>();
  readonly #gate = new Gate({ concurrent: maxRunning });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Rejects with TooManyRequests, or as `compute` does; a failure is not kept. */
  get(query: string, compute: () => Promise<string>): Promise<string> {
    const known = this.#kept.get(query);
    if (known !== undefined && this.#clock.now() - known.at < keptMs) return known.response;
    this.#kept.delete(query);
    if (this.#gate.queued >= maxWaiting) {
      return Promise.reject(new TooManyRequests("Too many different pages are requested at once."));
    }
    const kept: Kept = { at: Number.POSITIVE_INFINITY, response: this.#compute(compute) };
    this.#kept.set(query, kept);
    kept.response.then(
      () => {
        kept.at = this.#clock.now();
      },
      () => {
        if (this.#kept.get(query) === kept) this.#kept.delete(query);
      },
    );
    this.#dropOldest();
    return kept.response;
  }

  async #compute(compute: () => Promise<string>): Promise<string> {
    if (!this.#gate.enter(this)) await this.#gate.wait(this, 0, {});
    try {
      return await compute();
    } finally {
      this.#gate.leave(this);
    }
  }

  #dropOldest(): void {
    for (const [query, { at }] of this.#kept) {
      if (this.#kept.size <= maxKept) return;
      // One that is being computed is bounded otherwise.
      if (at !== Number.POSITIVE_INFINITY) this.#kept.delete(query);
    }
  }
}
