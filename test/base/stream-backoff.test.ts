import { describe, expect, it } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../src/base/errors.ts";
import { type Reachability, StreamBackoff } from "../../src/base/stream-backoff.ts";
import { FakeClock } from "../fake-clock.ts";

const broken = upstreamUnavailable("scripted");
const draining = new WatchFanoutError("DRAINING", "scripted");
const bounds = { initialMs: 200, maxMs: 10_000 };

/** Connections whose state a test sets. */
class Connections implements Reachability {
  hasAlternative = false;
  readonly #listeners = new Set<() => void>();

  onReady(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  becomeReady(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** A backoff with the maximum of its jitter, or that of `random`. */
function opened(random = () => 1) {
  const clock = new FakeClock();
  const reachability = new Connections();
  const backoff = new StreamBackoff({ bounds, clock, random, reachability });
  /** The pause after a stream that served for so long. */
  const pauseAfter = (servedMs: number, error: unknown = broken, leastMs = 0): number => {
    backoff.responded();
    clock.advance(servedMs);
    return backoff.next(error, leastMs);
  };
  return { clock, reachability, backoff, pauseAfter };
}

describe("The pauses between streams", () => {
  it("grow while streams break before they have served for as long as the longest pause", () => {
    const { pauseAfter, backoff } = opened();
    expect([pauseAfter(0), pauseAfter(9_999), backoff.next(broken, 0), pauseAfter(1)]).toEqual([
      200, 400, 800, 1_600,
    ]);
  });

  it("start again after a stream that has served for so long, whatever it delivered", () => {
    const { pauseAfter } = opened();
    expect([pauseAfter(0), pauseAfter(0), pauseAfter(10_000), pauseAfter(0)]).toEqual([
      200, 400, 200, 400,
    ]);
  });

  it("count from the first response, not from the attempt", () => {
    const { clock, backoff } = opened();
    backoff.next(broken, 0);
    clock.advance(60_000);
    expect(backoff.next(broken, 0)).toBe(400);
  });

  it("are at least what the server asks for", () => {
    const { backoff } = opened();
    expect(backoff.next(broken, 4_000)).toBe(4_000);
  });
});

describe("A planned end", () => {
  it("is no failure: the next stream is opened within 200 ms, however often that happens", () => {
    const { pauseAfter } = opened(() => 0.5);
    const pauses = Array.from({ length: 20 }, () => pauseAfter(2_000, draining, 1_000));
    expect(pauses).toEqual(pauses.map(() => 100));
  });

  it("is one for a relay, too, which reports it as the cause", () => {
    const { pauseAfter } = opened(() => 0);
    expect(pauseAfter(2_000, upstreamUnavailable("It drains.", draining))).toBe(0);
  });

  it("is a failure of a stream that has not served for a second", () => {
    const { pauseAfter, backoff } = opened();
    expect([pauseAfter(999, draining), backoff.next(draining, 1_000)]).toEqual([200, 1_000]);
  });
});

describe("If another server is ready", () => {
  it("the next stream is opened there at once, and if that fails too, after a pause", () => {
    const { pauseAfter, reachability } = opened(() => 0);
    reachability.hasAlternative = true;
    expect([pauseAfter(0), pauseAfter(0), pauseAfter(0), pauseAfter(0)]).toEqual([0, 200, 0, 800]);
  });

  it("the delay that a server asks for remains", () => {
    const { pauseAfter, reachability } = opened(() => 0);
    reachability.hasAlternative = true;
    expect(pauseAfter(0, broken, 500)).toBe(500);
  });
});

describe("A pause", () => {
  /** A pause after so many failures, and whether it has ended. */
  function paused(failures: number, leastMs = 0, signal?: AbortSignal) {
    const { clock, reachability, backoff } = opened(() => 0.5);
    let pauseMs = 0;
    for (let i = 0; i < failures; i++) pauseMs = backoff.next(broken, leastMs);
    const state = { ended: false };
    const wait = backoff.wait(pauseMs, leastMs, signal).then(() => {
      state.ended = true;
    });
    return { clock, reachability, backoff, pauseMs, state, wait };
  }

  it("ends at its time if nothing happens", async () => {
    const { clock, pauseMs, state } = paused(10);
    expect(pauseMs).toBe(7_500);
    await clock.elapse(7_499);
    expect(state.ended).toBe(false);
    await clock.elapse(1);
    expect(state.ended).toBe(true);
  });

  it("ends within 200 ms when a connection becomes ready, and the pauses start again", async () => {
    const { clock, reachability, backoff, state } = paused(10);
    await clock.elapse(1_000);
    reachability.becomeReady();
    await clock.elapse(99);
    expect(state.ended).toBe(false);
    await clock.elapse(1);
    expect(state.ended).toBe(true);
    expect(backoff.next(broken, 0)).toBe(150);
    expect([reachability.listeners, clock.pendingTimers]).toEqual([0, 0]);
  });

  it("is not prolonged by that", async () => {
    const { clock, reachability, pauseMs, state } = paused(10);
    await clock.elapse(pauseMs - 1);
    reachability.becomeReady();
    await clock.elapse(1);
    expect(state.ended).toBe(true);
  });

  it("does not end before the delay that the server asked for", async () => {
    const { clock, reachability, state } = paused(10, 3_000);
    reachability.becomeReady();
    await clock.elapse(2_999);
    expect(state.ended).toBe(false);
    await clock.elapse(1);
    expect(state.ended).toBe(true);
  });

  it("ends when its signal is aborted, also after a connection has become ready", async () => {
    for (const isReady of [false, true]) {
      const stop = new AbortController();
      const { clock, reachability, wait } = paused(10, 0, stop.signal);
      if (isReady) reachability.becomeReady();
      await clock.settle();
      stop.abort();
      await wait;
      expect([reachability.listeners, clock.pendingTimers]).toEqual([0, 0]);
    }
  });
});
