import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { RevisionWaiters } from "../../../src/cacher/freshness/revision-waiters.ts";
import { FakeClock } from "../../fake-clock.ts";

function open(onAsk: () => void = () => {}) {
  const clock = new FakeClock();
  /** When progress was requested. */
  const requests: number[] = [];
  const waiters = new RevisionWaiters(clock, () => {
    requests.push(clock.now());
    onAsk();
  });
  const log: string[] = [];
  return {
    clock,
    waiters,
    requests,
    log,
    add: (name: string, revision: number) =>
      waiters.add(
        revision,
        () => log.push(`${name} reached`),
        () => log.push(`${name} closed`),
      ),
    /** Asserts that no timer is left. */
    expectRest() {
      expect(waiters.size).toBe(0);
      expect(clock.pendingTimers + clock.pendingImmediates).toBe(0);
    },
  };
}

/** The outcome of `call` so far. */
async function now<T>(call: Promise<T>): Promise<T | "pending"> {
  await new Promise((resolve) => setImmediate(resolve));
  return Promise.race([call, "pending" as const]);
}

describe("A request that waits for a revision", () => {
  it.each([
    ["below", 4, false],
    ["at", 5, true],
    ["above", 9, true],
  ])("is notified when the cache is %s it", (_where, revision, isNotified) => {
    const { waiters, log, add } = open();
    add("a", 5);
    waiters.reached(revision);
    expect(log).toEqual(isNotified ? ["a reached"] : []);
    expect(waiters.size).toBe(isNotified ? 0 : 1);
  });

  it("is notified once, in the order of arrival, and no other is", () => {
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

  it("is not notified after it is cancelled, which is idempotent", () => {
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

  it("is not notified if another one, notified before it, cancels it", () => {
    const { waiters, log, add, expectRest } = open();
    let giveUp = (): void => {};
    waiters.add(5, () => giveUp());
    giveUp = add("b", 5);
    waiters.reached(5);
    expect(log).toEqual([]);
    expectRest();
  });

  it("that arrives while others are notified waits for the next revision", () => {
    const { waiters, log, add } = open();
    waiters.add(5, () => add("next", 5));
    waiters.reached(5);
    expect(log).toEqual([]);
    waiters.reached(6);
    expect(log).toEqual(["next reached"]);
  });
});

describe("Progress", () => {
  it("is requested once for all waits that begin in the same turn, after that turn", () => {
    const { clock, requests, add } = open();
    for (let i = 0; i < 10; i++) add(String(i), 5);
    expect(requests).toEqual([]);
    clock.runImmediates();
    expect(requests).toEqual([0]);
  });

  it("is requested every 100 ms while a request waits, and at once for a new one", () => {
    const { clock, requests, waiters, add, expectRest } = open();
    add("a", 5);
    clock.advance(250);
    expect(requests).toEqual([0, 100, 200]);
    add("b", 6);
    clock.advance(120);
    expect(requests).toEqual([0, 100, 200, 250, 350]);
    waiters.reached(6);
    expectRest();
    clock.advance(1_000);
    expect(requests).toHaveLength(5);
  });

  it("is not requested if the wait ends in the same turn", () => {
    const { clock, requests, waiters, add, expectRest } = open();
    add("a", 5);
    waiters.reached(5);
    clock.advance(1_000);
    expect(requests).toEqual([]);
    expectRest();
  });

  it("is no longer requested when the request for it ends the wait", () => {
    const opened = open(() => opened.waiters.reached(5));
    opened.add("a", 5);
    opened.clock.advance(1_000);
    expect(opened.log).toEqual(["a reached"]);
    expect(opened.requests).toEqual([0]);
    opened.expectRest();
  });

  it("is requested for as long as one of several requests waits", () => {
    const { clock, requests, waiters, add } = open();
    const giveUp = add("a", 5);
    waiters.add(6, () => {});
    giveUp();
    giveUp();
    clock.advance(150);
    expect(requests).toEqual([0, 100]);
    waiters.close();
    expect(waiters.size).toBe(0);
  });

  it("is requested again for a wait that begins after a pause", () => {
    const { clock, requests, waiters, add } = open();
    add("a", 5);
    clock.advance(10);
    waiters.reached(5);
    clock.advance(10);
    add("b", 6);
    clock.runImmediates();
    expect(requests).toEqual([0, 20]);
  });
});

describe("A wait with a timeout", () => {
  it("resolves to true as soon as the revision is reached", async () => {
    const { clock, waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    clock.advance(2_999);
    expect(await now(wait)).toBe("pending");
    waiters.reached(5);
    expect(await now(wait)).toBe(true);
    expectRest();
  });

  it("resolves to false after its timeout", async () => {
    const { clock, waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    clock.advance(3_000);
    expect(await now(wait)).toBe(false);
    waiters.reached(5);
    expect(await wait).toBe(false);
    expectRest();
  });

  it("rejects if its signal is aborted, before or meanwhile", async () => {
    const { clock, waiters, requests, expectRest } = open();
    await expect(waiters.wait(5, 3_000, AbortSignal.abort("gone"))).rejects.toBe("gone");
    clock.advance(0);
    expect(requests).toEqual([]);
    const giveUp = new AbortController();
    const wait = waiters.wait(5, 3_000, giveUp.signal);
    expect(await now(wait)).toBe("pending");
    giveUp.abort("gone");
    await expect(wait).rejects.toBe("gone");
    expectRest();
  });

  it("removes its listener from the signal when it ends, since the signal may live long", async () => {
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

  it("resolves to false on close, and after it", async () => {
    const { waiters, expectRest } = open();
    const wait = waiters.wait(5, 3_000);
    waiters.close();
    expect(await now(wait)).toBe(false);
    expect(await now(waiters.wait(5, 3_000))).toBe(false);
    expectRest();
  });
});

describe("On close", () => {
  it("every waiting request is notified, once", () => {
    const { waiters, log, add, expectRest } = open();
    add("a", 5);
    add("b", 6);
    waiters.close();
    waiters.close();
    waiters.reached(6);
    expect(log).toEqual(["a closed", "b closed"]);
    expectRest();
  });

  it("a later request is notified at once", () => {
    const { waiters, log, add, expectRest } = open();
    waiters.close();
    const giveUp = add("late", 5);
    giveUp();
    expect(log).toEqual(["late closed"]);
    expectRest();
  });

  it("a request that arrives while others are notified does not wait either", () => {
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
