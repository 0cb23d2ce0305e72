import type { Clock } from "./clock.ts";

/** Maximum time that the next check waits for the current one, in milliseconds. */
const maxWaitMs = 1_000;

/**
 * Coalesces calls of a check. Callers share a check, but only one that begins after their call, as an earlier one says
 * nothing about what has happened since. At most one check waits to begin.
 */
export class SingleFlightCheck {
  readonly #check: () => Promise<void>;
  readonly #clock: Clock;
  /** The check that the next one waits for. */
  #running: object | undefined;
  /** The check that has not begun yet, which new callers share. */
  #next: PromiseWithResolvers<void> | undefined;

  constructor(check: () => Promise<void>, clock: Clock) {
    this.#check = check;
    this.#clock = clock;
  }

  /** Settles as the check does. */
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
