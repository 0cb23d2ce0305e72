import { type WaitBounds, waitFor } from "./wait.ts";

/** Lets callers wait until something is true, which each `notify` checks. As Go's sync.Cond. */
export class Condition {
  readonly #waiters = new Set<() => void>();

  /** Resolves once `isTrue` returns true, or when the deadline is over. Rejects with the signal's reason. */
  until(isTrue: () => boolean, bounds: WaitBounds<void>): Promise<void> {
    return waitFor<void>((resolve) => {
      const check = (): void => {
        if (isTrue()) resolve();
      };
      this.#waiters.add(check);
      check();
      return () => this.#waiters.delete(check);
    }, bounds);
  }

  /** Makes every waiter check again. */
  notify(): void {
    for (const check of [...this.#waiters]) check();
  }
}
