import type { Clock, Timer } from "../../base/clock.ts";

interface Waiter {
  readonly revision: number;
  readonly onReached: () => void;
  readonly onClosed: (() => void) | undefined;
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
  /** Nobody waits for less. */
  #lowest = Infinity;
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
   * Calls `onReached` as soon as the cache has reached `revision`, or `onClosed` when waiting has become
   * pointless, unless the returned function is called first. That is harmless later, and twice.
   */
  add(revision: number, onReached: () => void, onClosed?: () => void): () => void {
    if (this.#closed) {
      onClosed?.();
      return () => {};
    }
    const waiter: Waiter = { revision, onReached, onClosed };
    this.#waiters.add(waiter);
    this.#lowest = Math.min(this.#lowest, revision);
    this.#ask();
    return () => this.#remove(waiter);
  }

  /**
   * Resolves to true as soon as the cache has reached `revision`, and to false after `timeoutMs`, when
   * `signal` is aborted, or when waiting has become pointless.
   */
  wait(revision: number, timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
    if (signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve) => {
      const settle = (reached: boolean): void => {
        cancel();
        timer.cancel();
        signal?.removeEventListener("abort", giveUp);
        resolve(reached);
      };
      const giveUp = (): void => settle(false);
      const timer = this.#clock.setTimeout(giveUp, timeoutMs);
      signal?.addEventListener("abort", giveUp);
      let cancel = (): void => {};
      cancel = this.add(revision, () => settle(true), giveUp);
    });
  }

  /** Wakes whoever waited for `revision` or less. */
  reached(revision: number): void {
    // Most of what comes wakes nobody.
    if (revision < this.#lowest) return;
    const waiters = [...this.#waiters];
    this.#lowest = Infinity;
    for (const { revision: other } of waiters) {
      if (other > revision) this.#lowest = Math.min(this.#lowest, other);
    }
    for (const waiter of waiters) {
      if (waiter.revision > revision || !this.#waiters.has(waiter)) continue;
      this.#remove(waiter);
      waiter.onReached();
    }
  }

  /** Nobody needs to wait any longer. Harmless when called twice. */
  close(): void {
    this.#closed = true;
    for (const waiter of [...this.#waiters]) {
      this.#remove(waiter);
      waiter.onClosed?.();
    }
  }

  #remove(waiter: Waiter): void {
    if (this.#waiters.delete(waiter) && this.#waiters.size === 0) this.#rest();
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
