import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { RevisionWaiters } from "../../../src/cacher/freshness/revision-waiters.ts";
import { FakeClock } from "../../fake-clock.ts";

function open(onAsk: () => void = () => {}) {
  const clock = new FakeClock();
  /** When progress was asked for. */
  const asked: number[] = [];
  const waiters = new RevisionWaiters(clock, () => {
    asked.push(clock.now());
    onAsk();
  });
  const log: string[] = [];
  return {
    clock,
    waiters,
    asked,
    log,
    add: (name: string, revision: number) =>
      waiters.add(
        revision,
        () => log.push(`${name} reached`),
        () => log.push(`${name} closed`),
      ),
    /** That nothing is left that could still do something. */
    expectRest() {
      expect(waiters.size).toBe(0);
      expect(clock.pendingTimers + clock.pendingImmediates).toBe(0);
    },
  };
}

/** What `call` has come to by now. */
async function now<T>(call: Promise<T>): Promise<T | "pending"> {
  await new Promise((resolve) => setImmediate(resolve));
  return Promise.race([call, "pending" as const]);
}

describe("Who waits for a revision", () => {
  it.each([
    ["below", 4, false],
    ["at", 5, true],
    ["above", 9, true],
  ])("is told when the cache is %s it", (_where, revision, told) => {
    const { waiters, log, add } = open();
    add("a", 5);
    waiters.reached(revision);
    expect(log).toEqual(told ? ["a reached"] : []);
    expect(waiters.size).toBe(told ? 0 : 1);
  });

  it("is told once, in the order of coming, and nobody else", () => {
    const { waiters, log, add } = open();
    add("a", 5);
    add("later", 7);
    add("b", 3);
    waiters.reached(5);
    waiters.reached(6);
    expect(log).toEqual(["a reached", "b reached"]);
    waiters.reached(7);
    expect(log.slice(2)).toEqual(["later reached"]);
  });

  it("is not told once it has given up, which it may do again and again", () => {
    const { waiters, log, add, expectRest } = open();
    const giveUp = add("a", 5);
    giveUp();
    giveUp();
    waiters.reached(5);
    waiters.close();
    giveUp();
    expect(log).toEqual([]);
    expectRest();
  });

  it("is not told where another that is told before has it give up", () => {
    const { waiters, log, add, expectRest } = open();
    let giveUp = (): void => {};
    waiters.add(5, () => giveUp());
    giveUp = add("b", 5);
    waiters.reached(5);
    expect(log).toEqual([]);
    expectRest();
  });

  it("that comes while others are told waits for the next time", () => {
    const { waiters, log, add } = open();
    waiters.add(5, () => add("next", 5));
    waiters.reached(5);
    expect(log).toEqual([]);
    waiters.reached(6);
    expect(log).toEqual(["next reached"]);
  });
});

describe("Progress", () => {
  it("is asked for once for all who begin to wait in the same turn, and not within it", () => {
    const { clock, asked, add } = open();
    for (let i = 0; i < 10; i++) add(String(i), 5);
    expect(asked).toEqual([]);
    clock.runImmediates();
    expect(asked).toEqual([0]);
  });

  it("is asked for every 100 ms while anyone waits, and at once for who comes meanwhile", () => {
    const { clock, asked, waiters, add, expectRest } = open();
    add("a", 5);
    clock.advance(250);
    expect(asked).toEqual([0, 100, 200]);
    add("b", 6);
    clock.advance(120);
    expect(asked).toEqual([0, 100, 200, 250, 350]);
    waiters.reached(6);
    expectRest();
    clock.advance(1_000);
    expect(asked).toHaveLength(5);
  });

  it("is not asked for where the wait is over in the same turn", () => {
    const { clock, asked, waiters, add, expectRest } = open();
    add("a", 5);
    waiters.reached(5);
    clock.advance(1_000);
    expect(asked).toEqual([]);
    expectRest();
  });

  it("that answers while it is asked for ends the asking", () => {
    const opened = open(() => opened.waiters.reached(5));
    opened.add("a", 5);
    opened.clock.advance(1_000);
    expect(opened.log).toEqual(["a reached"]);
    expect(opened.asked).toEqual([0]);
    opened.expectRest();
  });

  it("is asked for again by who waits after a rest", () => {
    const { clock, asked, waiters, add } = open();
    add("a", 5);
    clock.advance(10);
    waiters.reached(5);
    clock.advance(10);
    add("b", 6);
    clock.runImmediates();
    expect(asked).toEqual([0, 20]);
  });
});

describe("A wait with an end", () => {
  it("is true as soon as the revision is reached", async () => {
    const { clock, waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    clock.advance(2_999);
    expect(await now(wait)).toBe("pending");
    waiters.reached(5);
    expect(await now(wait)).toBe(true);
    expectRest();
  });

  it("is false when its time is over", async () => {
    const { clock, waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    clock.advance(3_000);
    expect(await now(wait)).toBe(false);
    waiters.reached(5);
    expect(await wait).toBe(false);
    expectRest();
  });

  it("is false when its signal is aborted, before or meanwhile", async () => {
    const { clock, waiters, asked, expectRest } = open();
    expect(await waiters.wait(5, 3_000, AbortSignal.abort())).toBe(false);
    clock.advance(0);
    expect(asked).toEqual([]);
    const giveUp = new AbortController();
    const wait = waiters.wait(5, 3_000, giveUp.signal);
    expect(await now(wait)).toBe("pending");
    giveUp.abort();
    expect(await now(wait)).toBe(false);
    expectRest();
  });

  it("lets go of its signal when it is over, as the signal may live long", async () => {
    const { clock, waiters } = open();
    const { signal } = new AbortController();
    const [reached, late, pointless] = [1, 2, 3].map((revision) =>
      waiters.wait(revision, 3_000, signal),
    );
    expect(getEventListeners(signal, "abort")).toHaveLength(3);
    waiters.reached(1);
    expect(getEventListeners(signal, "abort")).toHaveLength(2);
    waiters.close();
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
    expect(await Promise.all([reached, late, pointless])).toEqual([true, false, false]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("is false when waiting becomes pointless, and where it is already", async () => {
    const { waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    waiters.close();
    expect(await now(wait)).toBe(false);
    expect(await now(waiters.wait(5, 3_000))).toBe(false);
    expectRest();
  });
});

describe("When waiting becomes pointless", () => {
  it("everyone who waits is told so, once", () => {
    const { waiters, log, add, expectRest } = open();
    add("a", 5);
    add("b", 6);
    waiters.close();
    waiters.close();
    waiters.reached(6);
    expect(log).toEqual(["a closed", "b closed"]);
    expectRest();
  });

  it("who comes later is told at once", () => {
    const { waiters, log, add, expectRest } = open();
    waiters.close();
    const giveUp = add("late", 5);
    giveUp();
    expect(log).toEqual(["late closed"]);
    expectRest();
  });

  it("who comes while others are told does not wait either", () => {
    const { waiters, log, add, expectRest } = open();
    waiters.add(
      5,
      () => {},
      () => add("late", 5),
    );
    waiters.close();
    expect(log).toEqual(["late closed"]);
    expectRest();
  });
});
