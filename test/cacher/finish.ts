import type { TimeSlicedWork } from "../../src/base/event-loop-turns.ts";

/** Runs the work to its end without pauses, and returns its result. */
export function finish<T>(work: TimeSlicedWork<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
