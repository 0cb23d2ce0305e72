import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { LineLimit } from "../../base/logger.ts";

/** Minimum time between two lines, in milliseconds. */
const logIntervalMs = 60_000;

/** How long a store counts as full after it has refused a write, in milliseconds. */
const recentMs = 60_000;

/** Counts the writes that the store has refused because it is full, and logs one in a minute. */
export class FullStore {
  readonly #logger: Logger;
  readonly #lines: LineLimit;
  readonly #clock: Clock;
  #refused = 0;
  #refusedAt = -Infinity;

  constructor(clock: Clock, logger: Logger) {
    this.#logger = logger;
    this.#clock = clock;
    this.#lines = new LineLimit(clock, logIntervalMs);
  }

  /** Number of writes that were refused. */
  get refused(): number {
    return this.#refused;
  }

  /** Whether it has refused a write in the last minute. */
  get isFull(): boolean {
    return this.#clock.now() - this.#refusedAt < recentMs;
  }

  /** A write was refused. `why`: the store's error, or that for the client. */
  report(method: string, why: string): void {
    this.#refused++;
    this.#refusedAt = this.#clock.now();
    const suppressed = this.#lines.admit();
    if (suppressed === undefined) return;
    const counted = suppressed === 0 ? {} : { suppressedWrites: suppressed };
    this.#logger.error(
      { method, problem: why, ...counted },
      "the store is full and refuses writes",
    );
  }
}
