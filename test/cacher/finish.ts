import type { TimeSlicedWork } from "../../src/base/time-slices.ts";

/** What the work comes to, in one go. */
export function finish<T>(work: TimeSlicedWork<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
