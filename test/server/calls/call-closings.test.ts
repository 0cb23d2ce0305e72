import { describe, expect, it } from "vitest";
import { quantumMs, turnMs } from "../../../src/base/event-loop-turns.ts";
import { CallClosings } from "../../../src/server/calls/call-closings.ts";
import { WorkClock } from "../../work-clock.ts";

/** Ended calls whose release takes half a quantum each, and is logged by its number. */
function closing(maxWaiting?: number) {
  const clock = new WorkClock();
  const released: number[] = [];
  const closings = new CallClosings(clock, maxWaiting);
  const close = (count: number): void => {
    for (let i = 0; i < count; i++) {
      closings.add(() => {
        clock.spend(quantumMs / 2);
        released.push(i);
      });
    }
  };
  return { clock, released, closings, close };
}

const perTurn = (2 * turnMs) / quantumMs;

describe("Calls that end", () => {
  it("are released at once while they are few", () => {
    const { clock, released, closings, close } = closing();
    close(perTurn);
    expect(released).toHaveLength(perTurn);
    expect(closings.size).toBe(0);
    clock.runTurn();
    close(1);
    expect(released).toHaveLength(perTurn + 1);
  });

  it("all at once are released in order, one slice a turn", () => {
    const { clock, released, closings, close } = closing();
    close(5 * perTurn);
    for (let turn = 1; turn <= 5; turn++) {
      expect(released).toEqual(Array.from({ length: turn * perTurn }, (_, i) => i));
      expect(clock.now()).toBe(turn * turnMs);
      clock.runTurn();
    }
    expect(closings.size).toBe(0);
    clock.runTurn();
    expect(clock.pendingImmediates).toBe(0);
  });

  it("wait behind those that ended before them", () => {
    const { clock, released, close } = closing();
    close(perTurn + 2);
    clock.runTurn();
    close(1);
    clock.runTurn();
    expect(released.slice(perTurn)).toEqual([perTurn, perTurn + 1, 0]);
  });

  it("wait up to a bound: beyond it, the one that has waited for longest is released at once", () => {
    const { released, closings, close } = closing(3);
    close(perTurn + 5);
    expect(closings.size).toBe(3);
    expect(released).toEqual(Array.from({ length: perTurn + 2 }, (_, i) => i));
  });
});
