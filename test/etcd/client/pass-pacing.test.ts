import { setImmediate as nextTurn } from "node:timers/promises";
import { beforeEach, describe, expect, it } from "vitest";
import { PassPacing } from "../../../src/etcd/client/pass-pacing.ts";
import { FakeClock } from "../../fake-clock.ts";

let clock: FakeClock;
let pacing: PassPacing;

beforeEach(() => {
  clock = new FakeClock();
  pacing = new PassPacing(clock);
});

/** Waits for a turn. Returns when it had it, by the clock; undefined: not yet. */
function waiting(signal: AbortSignal = new AbortController().signal): { at: number | undefined } {
  const turn = { at: undefined as number | undefined };
  void pacing.turn(signal).then(() => {
    turn.at = clock.now();
  });
  return turn;
}

describe("A pass of etcd over its past", () => {
  it("may begin at once if it is the first", async () => {
    const first = waiting();
    await nextTurn();
    expect(first.at).toBe(0);
  });

  it("waits after another three times as long as that took, without etcd's own interval", async () => {
    const end = pacing.begin(1);
    clock.advance(300);
    end();
    const next = waiting();
    await clock.elapse(599);
    expect(next.at).toBeUndefined();
    await clock.elapse(1);
    expect(next.at).toBe(900);
  });

  it("waits for one that was cancelled by the number of its revisions", async () => {
    pacing.begin(100_000)();
    const next = waiting();
    await clock.elapse(1_000);
    expect(next.at).toBe(420);
  });

  it("waits for 2 s at most", async () => {
    pacing.begin(10_000_000)();
    const next = waiting();
    await clock.elapse(10_000);
    expect(next.at).toBe(2_000);
  });

  it("begins together with all that wait, and waits for a pass that ends meanwhile", async () => {
    const end = pacing.begin(1);
    pacing.begin(100_000)();
    const both = [waiting(), waiting()];
    await clock.elapse(400);
    end();
    await clock.elapse(10_000);
    // 400 + 3 × 300.
    expect(both.map(({ at }) => at)).toEqual([1_300, 1_300]);
  });

  it("does not wait any more once its signal is aborted", async () => {
    pacing.begin(100_000)();
    const stopping = new AbortController();
    const next = waiting(stopping.signal);
    await clock.elapse(100);
    stopping.abort();
    await nextTurn();
    expect(next.at).toBe(100);
  });
});
