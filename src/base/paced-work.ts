import type { Clock } from "./clock.ts";
import { EventLoopTurns } from "./event-loop-turns.ts";

/** Work of a known number of steps. */
export interface PacedWork {
  /** Does one step. Returns whether there are more. */
  step(): boolean;
  /** Number of steps, about. */
  readonly steps: number;
  /** Number of steps done so far. Default: one by each call of `step`. */
  readonly done?: () => number;
  /** Time in which they should be done, in milliseconds. */
  readonly withinMs: number;
}

/**
 * Maximum time that paced work may hold the event loop per call while it is behind its pace: this, in milliseconds, or half
 * of the time since the call before, if that is longer, because turns take long or many share the slice.
 */
const maxBehindMs = 8;

/**
 * Runs work in the event loop's time slices, as `runInTimeSlices`, and beyond them where it is behind its pace. Time
 * slices alone promise no time: a busy process has long turns, and all work shares a slice. With it the
 * steps are done in time, unless they take more than a third of the process.
 */
export function runPaced(clock: Clock, { step, steps, done, withinMs }: PacedWork): void {
  const start = clock.now();
  let calls = 0;
  let lastEnd = start;
  const isBehind = (now: number): boolean => (done?.() ?? calls) * withinMs < steps * (now - start);
  EventLoopTurns.of(clock).start({
    work: (until) => {
      let now = clock.now();
      const end = now + Math.max(maxBehindMs, (now - lastEnd) / 2);
      do {
        calls++;
        if (!step()) return false;
        now = clock.now();
      } while (now < until || (now < end && isBehind(now)));
      lastEnd = now;
      return true;
    },
  });
}
