import { describe, expect, test } from "vitest";
import type { Timer } from "../../../src/base/clock.ts";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { EventLoopTurns } from "../../../src/base/event-loop-turns.ts";
import type { Identity } from "../../../src/identity/identity.ts";
import { Credentials } from "../../../src/server/calls/credentials.ts";
import { OpenStreams } from "../../../src/server/kernel/open-streams.ts";
import { WorkClock } from "../../work-clock.ts";

/** The expiry of the tokens, in milliseconds since the epoch. The clock begins a minute before. */
const expiresAt = 1_000_000_000_000;

function jwt(expiry: number = expiresAt): Identity {
  return { name: "alice", groups: [], source: "jwt", expiresAt: expiry };
}

/** Fires its timers between two turns, as an event loop does, also while immediates wait. */
class BusyClock extends WorkClock {
  readonly #timers = new Set<{ readonly due: number; readonly callback: () => void }>();

  override setTimeout(callback: () => void, delayMs: number): Timer {
    const timer = { due: this.now() + delayMs, callback };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  turn(): void {
    for (const timer of [...this.#timers]) {
      if (timer.due <= this.now() && this.#timers.delete(timer)) timer.callback();
    }
    this.runTurn();
  }
}

/** Streams in a process with turns of `turnMs`, whose time slices others use as well. To end a stream takes 0.1 ms. */
function setUp(turnMs: number) {
  const clock = new BusyClock();
  const now = () => expiresAt - 60_000 + clock.now();
  const streams = new OpenStreams(10_000, {
    opened: ({ identity }) => credentials.opened(identity),
  });
  const credentials = new Credentials(clock, now, streams, 1_000);
  for (let i = 0; i < 8; i++) {
    EventLoopTurns.of(clock).schedule({
      work: (until) => {
        while (clock.now() < until) clock.spend(0.1);
        return true;
      },
    });
  }
  const ended: { at: number; error: WatchFanoutError }[] = [];
  const open = (identity: Identity): void =>
    streams.add({
      ...{ identity, access: undefined, owner: { connection: {} } },
      evict: (error) => {
        clock.spend(0.1);
        ended.push({ at: now(), error });
      },
    });
  const turn = (): void => {
    clock.spend(turnMs);
    clock.turn();
  };
  return { clock, now, credentials, open, ended, turn };
}

describe("The process", () => {
  test.each([1, 20, 50])(
    "ends 1,000 streams of one credential within a second, however busy the process is",
    (turnMs) => {
      const { now, open, ended, turn } = setUp(turnMs);
      const [expiring, later] = [jwt(), jwt(expiresAt + 60_000)];
      for (let i = 0; i < 1_000; i++) open(expiring);
      for (let i = 0; i < 100; i++) open(later);
      while (now() < expiresAt) turn();
      expect(ended.every(({ at }) => at >= expiresAt)).toBe(true);
      while (ended.length < 1_000) turn();
      expect(Math.max(...ended.map(({ at }) => at))).toBeLessThan(expiresAt + 1_000);
      while (now() < expiresAt + 10_000) turn();
      expect(ended).toHaveLength(1_000);
      expect(new Set(ended.map(({ error }) => error.reason))).toEqual(new Set(["UNAUTHENTICATED"]));
    },
  );

  test("ends the streams of a revoked credential as fast", () => {
    const { now, credentials, open, ended, turn } = setUp(50);
    const identity = jwt();
    for (let i = 0; i < 1_000; i++) open(identity);
    const before = now();
    credentials.revoke(identity);
    while (ended.length < 1_000) turn();
    expect(now() - before).toBeLessThan(1_000);
    expect(credentials.lapsed({ identity, connection: {} })?.message).toContain(
      "no longer accepted",
    );
  });
});
