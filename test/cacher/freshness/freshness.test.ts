import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { CurrentRevision, Freshness } from "../../../src/cacher/freshness/freshness.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import type { ComponentContext, Replacement } from "../../../src/cacher/state/component.ts";
import { Readiness } from "../../../src/cacher/state/readiness.ts";
import { FakeClock } from "../../fake-clock.ts";

/** The freshness of a cache that is at revision 5, and a store at revision 9. */
function open() {
  const clock = new FakeClock();
  const lines: string[] = [];
  const readiness = new Readiness("things");
  const cache = { revision: 5, historyId: "first", eventWindow: {} };
  let requests = 0;
  const context = {
    ...{ name: "things", clock, readiness, cache },
    logger: pino({ base: null }, { write: (line: string) => void lines.push(line) }),
    storage: { currentRevision: async () => 9 },
    source: { requestProgress: () => void requests++ },
  } as unknown as ComponentContext;
  const confirm = async () => {};
  const history = { historyGeneration: 1, confirmHistory: confirm, confirmWatched: confirm };
  const freshness = new Freshness(context, new UpstreamLimiter(clock), history);
  const listed = (cause: Replacement["cause"], current: number, revision: number): void =>
    freshness.reset({ cause, state: { current, revision } } as unknown as Replacement);
  return { clock, readiness, cache, freshness, lines, listed, requests: () => requests };
}

describe("A cache that was listed", () => {
  it("is ready at the store's revision, up to which progress is requested", () => {
    const { clock, readiness, freshness, lines, listed, requests } = open();
    listed("first list" as Replacement["cause"], 9, 5);
    freshness.advanced(5);
    clock.advance(150);
    expect([readiness.ready, requests(), lines]).toEqual([false, 2, []]);
    freshness.advanced(9);
    clock.advance(1_000);
    expect([readiness.ready, requests()]).toEqual([true, 2]);
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { msg: "the cache is ready", resource: "things", revision: 9 },
    ]);
    freshness.advanced(10);
    expect(lines.length).toBe(1);
  });

  it("needs no progress if the list has the store's revision", () => {
    const { clock, readiness, freshness, listed, requests } = open();
    listed("first list" as Replacement["cause"], 9, 9);
    clock.advance(1_000);
    freshness.advanced(9);
    expect([readiness.ready, requests(), clock.pendingTimers]).toEqual([true, 0, 0]);
    listed("history lost", 30, 20);
    clock.advance(1_000);
    expect([requests(), freshness.waiters.size]).toEqual([0, 0]);
  });

  it("again, before it was ready, waits for one revision", () => {
    const { freshness, listed } = open();
    listed("first list" as Replacement["cause"], 9, 5);
    listed("history lost", 8, 6);
    expect(freshness.waiters.size).toBe(1);
    freshness.advanced(8);
    expect(freshness.waiters.size).toBe(0);
  });

  it("in another history forgets the revision that the store had in the one before", async () => {
    const { freshness, listed } = open();
    await freshness.currentRevision.get();
    listed("history lost", 9, 9);
    expect(freshness.currentRevision.newest).toBe(9);
    listed("history changed", 4, 4);
    expect(freshness.currentRevision.newest).toBe(0);
  });
});

describe("A request that waits for a revision", () => {
  it("has progress requested, and ends when the cache has it, or is closed", async () => {
    const { clock, cache, freshness, readiness, requests } = open();
    const first = freshness.reach({ match: "NOT_OLDER_THAN", revision: 7 });
    const second = freshness.reachKnown(9);
    await clock.settle();
    expect(requests()).toBe(1);
    cache.revision = 7;
    freshness.advanced(7);
    expect(await first).toBe(7);
    freshness.close();
    expect(await second).toBe(false);
    expect(() => readiness.check(true)).toThrow(expect.objectContaining({ reason: "DRAINING" }));
  });
});

describe("The store's current revision", () => {
  it("that was asked for in the history before does not count in this one", async () => {
    const answers: ((revision: number) => void)[] = [];
    const ask = (): Promise<number> => new Promise((resolve) => answers.push(resolve));
    const clock = new FakeClock();
    const current = new CurrentRevision(ask, clock);
    /** Asks, does something meanwhile, and answers. */
    const get = async (revision: number, meanwhile = (): void => {}): Promise<number> => {
      const asked = current.get();
      await clock.settle();
      meanwhile();
      answers.pop()?.(revision);
      return asked;
    };
    expect([await get(9, () => current.forget()), current.newest]).toEqual([9, 0]);
    expect([await get(3), current.newest]).toEqual([3, 3]);
    expect([await get(2), current.newest]).toEqual([2, 3]);
  });
});
