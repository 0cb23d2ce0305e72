import type { Clock } from "../clock.ts";

/** For how long work may go on before the event loop gets its turn, in milliseconds. */
export const sliceMs = 4;

/**
 * Works through `steps` in slices, of which the first is now: whenever one has taken long enough the
 * event loop gets a turn. A step is what the generator does between two yields.
 */
export function inSlices(clock: Clock, steps: Generator<void, void, void>): void {
  const until = clock.now() + sliceMs;
  while (steps.next().done !== true) {
    if (clock.now() < until) continue;
    clock.setImmediate(() => inSlices(clock, steps));
    return;
  }
}
