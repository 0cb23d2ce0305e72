import type { Clock, Timer } from "../clock.ts";

interface Waiter {
  readonly revision: number;
  readonly settle: (reached: boolean) => void;
}

/**
 * Those who wait for the cache to reach a revision. While anyone waits, the storage is asked for
 * progress, at once and then at an interval: the revision may be of a key that the resource does not
 * hold, and then no event would ever tell.
 */
export class RevisionWaiters {
  readonly #clock: Clock;
  readonly #requestProgress: () => void;
  readonly #intervalMs: number;
  readonly #waiters = new Set<Waiter>();
  #asking: Timer | undefined;
  #timer: Timer | undefined;
  #closed = false;

  constructor(clock: Clock, requestProgress: () => void, intervalMs: number = 100) {
    this.#clock = clock;
    this.#requestProgress = requestProgress;
    this.#intervalMs = intervalMs;
  }

  get size(): number {
    return this.#waiters.size;
  }

  /**
   * Resolves to true as soon as the cache has reached `revision`, and to false after `timeoutMs`
   * (undefined: never), when `signal` is aborted, or when waiting has become pointless.
   */
  wait(revision: number, timeoutMs?: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#closed || signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve) => {
      const waiter: Waiter = {
        revision,
        settle: (reached) => {
          this.#waiters.delete(waiter);
          timer?.cancel();
          signal?.removeEventListener("abort", giveUp);
          if (this.#waiters.size === 0) this.#rest();
          resolve(reached);
        },
      };
      const giveUp = (): void => waiter.settle(false);
      const timer = timeoutMs === undefined ? undefined : this.#clock.setTimeout(giveUp, timeoutMs);
      signal?.addEventListener("abort", giveUp);
      this.#waiters.add(waiter);
      this.#ask();
    });
  }

  /** Wakes whoever waited for `revision` or less. */
  reached(revision: number): void {
    if (this.#waiters.size === 0) return;
    for (const waiter of [...this.#waiters]) {
      if (waiter.revision <= revision) waiter.settle(true);
    }
  }

  /** Nobody needs to wait any longer. Harmless when called twice. */
  close(): void {
    this.#closed = true;
    for (const waiter of [...this.#waiters]) waiter.settle(false);
  }

  /** Once for all who begin to wait in the same turn of the event loop. */
  #ask(): void {
    if (this.#asking !== undefined) return;
    this.#asking = this.#clock.setImmediate(() => {
      this.#asking = undefined;
      this.#timer?.cancel();
      this.#timer = this.#clock.setTimeout(() => this.#ask(), this.#intervalMs);
      this.#requestProgress();
    });
  }

  #rest(): void {
    this.#asking?.cancel();
    this.#asking = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
