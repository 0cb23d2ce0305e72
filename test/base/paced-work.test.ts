import { describe, expect, test } from "vitest";
import { EventLoopTurns } from "../../src/base/event-loop-turns.ts";
import { runPaced } from "../../src/base/paced-work.ts";
import { WorkClock } from "../work-clock.ts";

/** A process with other time-sliced work, and with turns that take this long, in milliseconds. */
function busy(turnMs: number) {
  const clock = new WorkClock();
  for (let i = 0; i < 8; i++) {
    EventLoopTurns.of(clock).schedule({
      work: (until) => {
        while (clock.now() < until) clock.spend(0.1);
        return true;
      },
    });
  }
  const turn = (): void => {
    clock.spend(turnMs);
    clock.runTurn();
  };
  return { clock, turn };
}

/** Runs steps of 0.1 ms. Returns when all were done, and the longest time that time-sliced work has held a turn. */
function run(steps: number, turnMs: number) {
  const { clock, turn } = busy(turnMs);
  let left = steps;
  runPaced(clock, {
    ...{ steps, withinMs: 500 },
    step: () => {
      clock.spend(0.1);
      return --left > 0;
    },
  });
  let longestMs = 0;
  while (left > 0) {
    const before = clock.now();
    turn();
    longestMs = Math.max(longestMs, clock.now() - before - turnMs);
  }
  return { ms: clock.now(), longestMs };
}

describe("Paced work", () => {
  test.each([0, 5, 20, 50])(
    "is done in its time beside other work, in turns of %d ms",
    (turnMs) => {
      const { ms, longestMs } = run(1_000, turnMs);
      expect(ms).toBeLessThan(500 + 2 * (turnMs + 10));
      // What it needs per turn of its 500 ms, and the slice that all share.
      expect(longestMs).toBeLessThan(3 + Math.max(8, turnMs));
    },
  );

  test("that is too much takes longer, and holds the event loop no longer per turn", () => {
    const { ms, longestMs } = run(20_000, 10);
    expect(ms).toBeGreaterThan(2_000);
    expect(longestMs).toBeLessThan(3 + 20);
  });
});
