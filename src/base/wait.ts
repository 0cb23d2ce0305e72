import type { Clock, Timer } from "./clock.ts";

/** What ends a wait, beside what is waited for. */
export interface WaitBounds<T> {
  /** When it is aborted, the wait rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** The maximum time of the wait. */
  readonly deadline?: WaitDeadline<T> | undefined;
  /**
   * Charges what is held for the wait, until it ends. `evict` ends it with an error, and may be called before this
   * returns.
   */
  readonly charge?: ((evict: (error: unknown) => void) => Charge) | undefined;
}

export interface WaitDeadline<T> {
  readonly clock: Clock;
  readonly ms: number;
  /** Called when the time is over. The wait resolves to what it returns, or rejects with what it throws. */
  readonly expire: () => T;
}

/** What is held for a wait. */
export interface Charge {
  /** Idempotent. */
  release(): void;
}

/**
 * Waits for one call of `resolve` or `reject`, within the bounds. `begin` starts the wait, and may return a function
 * that removes what it has left behind, which is called once, however the wait ends.
 *
 * Whatever ends it first takes away everything else, before the promise settles: the place in a queue, the listener of the
 * signal, which may live much longer, the timer, and the charge.
 */
export function waitFor<T>(
  begin: (
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
  ) => (() => void) | undefined,
  { signal, deadline, charge }: WaitBounds<T>,
): Promise<T> {
  if (signal?.aborted === true) return Promise.reject(signal.reason);
  return new Promise<T>((resolve, reject) => {
    let isOver = false;
    const end = (): boolean => {
      if (isOver) return false;
      isOver = true;
      cancel?.();
      timer?.cancel();
      signal?.removeEventListener("abort", abort);
      held?.release();
      return true;
    };
    const succeed = (value: T): void => {
      if (end()) resolve(value);
    };
    const fail = (error: unknown): void => {
      if (end()) reject(error);
    };
    const abort = (): void => fail(signal?.reason);
    let cancel: (() => void) | undefined;
    let timer: Timer | undefined;
    let held: Charge | undefined;
    cancel = begin(succeed, fail);
    if (isOver) return cancel?.();
    timer = deadline && timeout(deadline, end, resolve, reject);
    signal?.addEventListener("abort", abort);
    // What begins the wait may have aborted it.
    if (signal?.aborted === true) return abort();
    held = charge?.(fail);
    if (isOver) held?.release();
  });
}

function timeout<T>(
  { clock, ms, expire }: WaitDeadline<T>,
  end: () => boolean,
  resolve: (value: T) => void,
  reject: (error: unknown) => void,
): Timer {
  return clock.setTimeout(() => {
    if (!end()) return;
    try {
      resolve(expire());
    } catch (error) {
      reject(error);
    }
  }, ms);
}

/** Settles as `promise` does, within the bounds. For shared work that continues for others when one gives up. */
export function within<T>(promise: Promise<T>, bounds: WaitBounds<T>): Promise<T> {
  // Its failure is not left unhandled when this caller does not wait for it any more.
  if (bounds.signal?.aborted === true) promise.catch(() => {});
  return waitFor<T>((resolve, reject) => {
    promise.then(resolve, reject);
    return undefined;
  }, bounds);
}

/** Settles as `promise` does, or rejects with the signal's reason as soon as that is aborted. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return signal === undefined ? promise : within(promise, { signal });
}

/** Resolves when `promise` does, and no later than after `ms` milliseconds. Rejects as `promise` does until then. */
export function settledWithin(promise: Promise<unknown>, clock: Clock, ms: number): Promise<void> {
  const settled = promise.then(() => {});
  return within(settled, { deadline: { clock, ms, expire: () => {} } });
}

/** Lets callers wait until something is true, which each `notify` checks. As Go's sync.Cond. */
export class Condition {
  readonly #waiters = new Set<() => void>();

  /** Number of callers that wait. */
  get waiting(): number {
    return this.#waiters.size;
  }

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
