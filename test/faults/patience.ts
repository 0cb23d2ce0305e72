import { setTimeout as delay } from "node:timers/promises";
import { nextPause } from "../until.ts";

/** How long the harness waits for anything before it says that it does not come, in milliseconds. */
export const patienceMs = 60_000;

/**
 * Polls until `look` returns something: for the state of other processes, which do not notify the test
 * when it changes. A `look` that throws has not seen it yet.
 */
export async function untilSeen<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  const deadline = performance.now() + patienceMs;
  let failure: unknown;
  for (let pauseMs = 1; performance.now() < deadline; pauseMs = nextPause(pauseMs)) {
    try {
      const seen = await look();
      if (seen !== undefined) return seen;
    } catch (error) {
      failure = error;
    }
    await delay(pauseMs);
  }
  throw new Error(`Waited ${patienceMs} ms without result for ${what}.`, { cause: failure });
}

/** Resolves like `promise`, or rejects with an error that names `what` after the time limit. */
export async function inTime<T>(
  what: () => string,
  promise: Promise<T>,
  limitMs: number = patienceMs,
): Promise<T> {
  const stop = new AbortController();
  const late = delay(limitMs, undefined, { signal: stop.signal, ref: true }).then(
    () => {
      throw new Error(`Waited ${limitMs} ms without result for ${what()}.`);
    },
    () => promise,
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    stop.abort();
  }
}

/** A changing condition, and those that wait for it. */
export class Changing {
  readonly #waiting = new Set<() => void>();

  /** Resolves as soon as `reached` returns true; it is called now and at every change. */
  until(reached: () => boolean): Promise<void> {
    if (reached()) return Promise.resolve();
    return new Promise((resolve) => {
      const look = (): void => {
        if (!reached()) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
    });
  }

  changed(): void {
    for (const look of [...this.#waiting]) look();
  }
}
