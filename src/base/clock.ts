/** The longest delay that a timer of Node.js takes, in milliseconds; almost 25 days. */
export const maxTimerMs = 2 ** 31 - 1;

/**
 * Time, passed in so that tests decide when it passes.
 */
export interface Clock {
  /** Milliseconds since some fixed moment. Never goes back, unlike the time of day. */
  now(): number;
  /** Calls `callback` once, `delayMs` from now (0 to `maxTimerMs`), unless cancelled first. */
  setTimeout(callback: () => void, delayMs: number): Timer;
  /**
   * Calls `callback` once what is at hand now has been dealt with: sockets have been read, pending
   * callbacks have run. What comes meanwhile is gathered for free.
   */
  setImmediate(callback: () => void): Timer;
}

export interface Timer {
  /** Harmless after the callback ran, and when called twice. */
  cancel(): void;
}

/** The machine's own time. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  setTimeout: (callback, delayMs) => {
    const timeout = setTimeout(callback, delayMs).unref();
    return { cancel: () => clearTimeout(timeout) };
  },
  setImmediate: (callback) => {
    const immediate = setImmediate(callback);
    return { cancel: () => clearImmediate(immediate) };
  },
};

/**
 * The machine's own time, with timers that keep the process alive. For clients: while the server is away there may
 * be nothing but such a timer, and a program that waits for its server is not to end of that.
 */
export const keepAliveClock: Clock = {
  ...systemClock,
  setTimeout: (callback, delayMs) => {
    const timeout = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** Resolves after `ms` milliseconds, or at once when one of the signals is aborted. */
export function pause(
  clock: Clock,
  ms: number,
  ...signals: readonly (AbortSignal | undefined)[]
): Promise<void> {
  return new Promise((resolve) => {
    if (signals.some((signal) => signal?.aborted === true)) return resolve();
    const done = (): void => {
      timer.cancel();
      for (const signal of signals) signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = clock.setTimeout(done, ms);
    for (const signal of signals) signal?.addEventListener("abort", done);
  });
}
