import { setTimeout as delay } from "node:timers/promises";

/** The longest pause between two looks at another process, in milliseconds: a look takes CPU time of both. */
const longestPauseMs = 100;

/**
 * Looks again and again until the condition is true, with pauses that grow with the wait, for what it waits for. For the state
 * of what does not notify the test when it changes.
 */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  for (let pauseMs = 1; !(await condition()); pauseMs = nextPause(pauseMs)) await delay(pauseMs);
}

/** The pause after one of `pauseMs`, both in milliseconds. */
export function nextPause(pauseMs: number): number {
  return Math.min(longestPauseMs, pauseMs * 1.2);
}
