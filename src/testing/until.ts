import { setImmediate as nextTurn, setTimeout as pause } from "node:timers/promises";
import { invalidRequest, messageOf } from "../base/errors.ts";

/** Options of `until`. */
export interface UntilOptions {
  /** How long to wait, in milliseconds of real time, whatever a TestClock says. Default 10,000. */
  readonly timeoutMs?: number | undefined;
}

/** Turns of the event loop in which the condition is looked at each time; then once a millisecond. */
const eagerTurns = 50;

/**
 * Resolves to what `condition` returns, as soon as that is neither undefined nor false. It is called again and again, may be
 * asynchronous, and may throw as long as it does not hold.
 *
 *     await until("the endpoints of web", () => informer.indexer.get("ns-1/web"));
 *
 * Rejects with an Error that says `what`, and with the last error of `condition` as its cause, when the time is over.
 * Rejects with INVALID_REQUEST for a timeout that is not above 0.
 */
export async function until<T>(
  what: string | (() => string),
  condition: () => T | undefined | false | Promise<T | undefined | false>,
  { timeoutMs = 10_000 }: UntilOptions = {},
): Promise<T> {
  if (!(timeoutMs > 0)) {
    throw invalidRequest("timeoutMs", `timeoutMs is ${timeoutMs}: it must be above 0.`);
  }
  const deadline = performance.now() + timeoutMs;
  for (let turns = 0; ; turns++) {
    let failure: unknown;
    try {
      const found = await beforeDeadline(condition(), deadline);
      if (found !== undefined && found !== false) return found;
    } catch (error) {
      failure = error;
    }
    if (performance.now() >= deadline) throw late(what, timeoutMs, failure);
    await (turns < eagerTurns ? nextTurn() : pause(1));
  }
}

/** Settles as the promise does; resolves to undefined when the time is over. */
async function beforeDeadline<T>(
  promise: T | Promise<T>,
  deadline: number,
): Promise<T | undefined> {
  if (!(promise instanceof Promise)) return promise;
  const over = new AbortController();
  const leftMs = Math.max(0, deadline - performance.now());
  const timer = pause(leftMs, undefined, { signal: over.signal }).catch(() => undefined);
  try {
    return await Promise.race([promise, timer]);
  } finally {
    over.abort();
  }
}

function late(what: string | (() => string), timeoutMs: number, failure: unknown): Error {
  const why = failure === undefined ? "" : ` Last error: ${messageOf(failure)}`;
  const cause = failure === undefined ? {} : { cause: failure };
  const waitedFor = typeof what === "string" ? what : what();
  return new Error(`Timed out after ${timeoutMs} ms, waiting for ${waitedFor}.${why}`, cause);
}
