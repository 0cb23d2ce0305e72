import type { Clock, Timer } from "../../base/clock.ts";
import { waitFor } from "../../base/wait.ts";

interface Waiter {
  readonly revision: number;
  readonly onReached: () => void;
  readonly onClosed: (() => void) | undefined;
}

/**
 * Requests that wait for the cache to reach a revision. While at least one waits, progress is requested from the
 * storage, at once and then at an interval: the revision may be that of a key outside the resource, which no event
 * would report.
 */
export class RevisionWaiters {
  readonly #clock: Clock;
  readonly #requestProgress: () => void;
  readonly #intervalMs: number;
  readonly #waiters = new Set<Waiter>();
  /** The lowest revision that a request waits for. */
  #lowest = Infinity;
  #pending: Timer | undefined;
  #timer: Timer | undefined;
  #isClosed = false;

  /** `intervalMs`: how often progress is requested, in milliseconds. */
  constructor(clock: Clock, requestProgress: () => void, intervalMs: number = 100) {
    this.#clock = clock;
    this.#requestProgress = requestProgress;
    this.#intervalMs = intervalMs;
  }

  /** Number of waiting requests. */
  get size(): number {
    return this.#waiters.size;
  }

  /**
   * Calls `onReached` as soon as the cache has reached `revision`, or `onClosed` on `close`. The returned function
   * cancels the wait; it is idempotent.
   */
  add(revision: number, onReached: () => void, onClosed?: () => void): () => void {
    if (this.#isClosed) {
      onClosed?.();
      return () => {};
    }
    const waiter: Waiter = { revision, onReached, onClosed };
    this.#waiters.add(waiter);
    this.#lowest = Math.min(this.#lowest, revision);
    this.#requestSoon();
    return () => this.#remove(waiter);
  }

  /**
   * Resolves to true as soon as the cache has reached `revision`, and to false after `timeoutMs` milliseconds or on
   * `close`. Rejects with the signal's reason.
   */
  wait(revision: number, timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
    const expire = (): boolean => false;
    return waitFor<boolean>(
      (resolve) =>
        this.add(
          revision,
          () => resolve(true),
          () => resolve(false),
        ),
      { signal, deadline: { clock: this.#clock, ms: timeoutMs, expire } },
    );
  }

  /** The cache has reached `revision`: ends the waits for it and for lower ones. */
  reached(revision: number): void {
    // The common case: no request waits for this revision.
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

  /** Ends all waits, and those that begin later at once. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const waiter of [...this.#waiters]) {
      this.#remove(waiter);
      waiter.onClosed?.();
    }
  }

  #remove(waiter: Waiter): void {
    if (this.#waiters.delete(waiter) && this.#waiters.size === 0) this.#stopRequests();
  }

  /** Requests progress once for all waits that begin in the same turn of the event loop. */
  #requestSoon(): void {
    if (this.#pending !== undefined) return;
    this.#pending = this.#clock.setImmediate(() => {
      this.#pending = undefined;
      this.#timer?.cancel();
      this.#timer = this.#clock.setTimeout(() => this.#requestSoon(), this.#intervalMs);
      this.#requestProgress();
    });
  }

  #stopRequests(): void {
    this.#pending?.cancel();
    this.#pending = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
