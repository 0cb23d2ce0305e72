import type { Clock } from "./clock.ts";

/** How long a check is waited for before the next one begins all the same, in milliseconds. */
const maxWaitMs = 1_000;

/**
 * A check that is made as seldom as is right: callers share one, but never one that began before their call, as it
 * says nothing of what has happened since. However many call, no more than one at a time waits to begin.
 */
export class SingleFlightCheck {
  readonly #check: () => Promise<void>;
  readonly #clock: Clock;
  /** The check that the next one waits for. */
  #running: object | undefined;
  /** The check that has not begun, which whoever calls now may share. */
  #next: PromiseWithResolvers<void> | undefined;

  constructor(check: () => Promise<void>, clock: Clock) {
    this.#check = check;
    this.#clock = clock;
  }

  /** Rejects as the check does. */
  run(): Promise<void> {
    this.#next ??= Promise.withResolvers<void>();
    const { promise } = this.#next;
    if (this.#running === undefined) this.#begin();
    return promise;
  }

  #begin(): void {
    const check = this.#next;
    if (check === undefined) return;
    this.#next = undefined;
    this.#running = check;
    const startNext = (): void => {
      if (this.#running !== check) return;
      this.#running = undefined;
      this.#begin();
    };
    const timer = this.#clock.setTimeout(startNext, maxWaitMs);
    this.#check()
      .then(check.resolve, check.reject)
      .finally(() => {
        timer.cancel();
        startNext();
      });
  }
}
