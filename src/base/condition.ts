/** Lets callers wait until something is true, which each `notify` checks. As Go's sync.Cond. */
export class Condition {
  readonly #waiters = new Set<() => void>();

  /** Resolves once `isTrue` returns true, or when the signal is aborted. */
  until(isTrue: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!isTrue() && !signal.aborted) return;
        this.#waiters.delete(check);
        signal.removeEventListener("abort", check);
        resolve();
      };
      this.#waiters.add(check);
      signal.addEventListener("abort", check);
      check();
    });
  }

  /** Makes every waiter check again. */
  notify(): void {
    for (const check of [...this.#waiters]) check();
  }
}
