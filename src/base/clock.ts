/** The longest delay that a Node.js timer supports, in milliseconds: almost 25 days. */
export const maxTimerMs = 2 ** 31 - 1;

/** The source of time, injected so that tests control it. */
export interface Clock {
  /** Milliseconds since an arbitrary fixed moment. Monotonic, unlike the time of day. */
  now(): number;
  /** Calls `callback` once, after `delayMs` milliseconds (0 to `maxTimerMs`), unless it is cancelled first. */
  setTimeout(callback: () => void, delayMs: number): Timer;
  /**
   * Calls `callback` once in the next event-loop turn: after sockets have been read and pending callbacks have run.
   * Coalesces everything that arrives before that, at no cost.
   */
  setImmediate(callback: () => void): Timer;
}

export interface Timer {
  /** Idempotent; has no effect after the callback ran. */
  cancel(): void;
}

/** The system's time. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  setTimeout: (callback, delayMs) => {
    const timeout = setTimeout(callback, delayMs);
    // In a browser it is a number, and keeps nothing alive.
    timeout.unref?.();
    return { cancel: () => clearTimeout(timeout) };
  },
  setImmediate:
    typeof setImmediate === "function"
      ? (callback) => {
          const immediate = setImmediate(callback);
          return { cancel: () => clearImmediate(immediate) };
        }
      : nextTask,
};

/** `setImmediate` in a browser: a message to itself, as browsers delay the timers of pages that are not in front. */
function nextTask(callback: () => void): Timer {
  const { port1, port2 } = new MessageChannel();
  const called = (): void => {
    port1.close();
    callback();
  };
  // The types are those of Node.js.
  Object.assign(port1, { onmessage: called });
  port2.postMessage(undefined);
  return { cancel: () => port1.close() };
}

/**
 * The system's time, with timers that keep the process alive. For clients: while the server is unreachable, such a
 * timer may be all that is left, and a program that waits for its server must not exit then.
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
