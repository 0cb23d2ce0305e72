import { EventEmitter } from "node:events";
import type { ServerHttp2Session } from "node:http2";
import { expect, test } from "vitest";
import { SessionUpkeep } from "../../../src/server/listener/listener.ts";
import { FakeClock } from "../../fake-clock.ts";

type Answer = (error: Error | null) => void;

/** A session that records its pings, and what ends it. */
class FakeSession extends EventEmitter {
  readonly pings: Answer[] = [];
  readonly ends: string[] = [];
  closed = false;
  destroyed = false;

  ping(answer: Answer): boolean {
    this.pings.push(answer);
    return true;
  }

  goaway(code: number): void {
    this.ends.push(`goaway ${code}`);
  }

  close(): void {
    this.closed = true;
    this.ends.push("close");
  }

  destroy(): void {
    this.destroyed = true;
    this.ends.push("destroy");
    this.emit("close");
  }
}

function keptUp(limits: { readonly maxStreamAgeMs?: number } = {}) {
  const clock = new FakeClock();
  const session = new FakeSession();
  const unanswered: unknown[] = [];
  new SessionUpkeep(session as unknown as ServerHttp2Session, {
    clock,
    random: () => 0.5,
    limits: {
      ...{ keepaliveTimeMs: 30_000, keepaliveTimeoutMs: 20_000, maxStreamAgeMs: 0 },
      ...limits,
    },
    onUnanswered: (each) => unanswered.push(each),
  });
  return { clock, session, unanswered };
}

test("A connection is pinged each time after the last answer, and closed without one in time", () => {
  const { clock, session, unanswered } = keptUp();
  clock.advance(30_000);
  expect(session.pings).toHaveLength(1);
  clock.advance(19_999);
  session.pings[0]?.(null);
  clock.advance(29_999);
  expect(session.pings).toHaveLength(1);
  clock.advance(1);
  expect(session.pings).toHaveLength(2);
  clock.advance(19_999);
  expect(session.ends).toEqual([]);
  clock.advance(1);
  expect([session.ends, unanswered]).toEqual([["destroy"], [session]]);
  expect(clock.pendingTimers).toBe(0);
});

test("A process that was stopped for long reads the answers before it closes connections without one", async () => {
  const { clock, session } = keptUp();
  clock.advance(30_000);
  // The timer of the ping fires, and in the same turn the answer is read from the socket.
  const [answer] = session.pings;
  clock.setTimeout(() => answer?.(null), 18_000);
  clock.advance(18_000);
  clock.advance(29_999);
  expect([session.ends, session.pings.length]).toEqual([[], 1]);
  clock.advance(1);
  expect(session.pings).toHaveLength(2);
});

test("A connection gets a GOAWAY at its maximum age, and is pinged no more", () => {
  const { clock, session } = keptUp({ maxStreamAgeMs: 60_000 });
  clock.advance(30_000);
  session.pings[0]?.(null);
  clock.advance(30_000);
  expect(session.ends).toEqual(["goaway 0", "close"]);
  clock.advance(600_000);
  expect(session.pings).toHaveLength(1);
  expect(session.destroyed).toBe(false);
});

test("What was closed holds no timer", () => {
  const { clock, session } = keptUp({ maxStreamAgeMs: 60_000 });
  session.destroy();
  expect(clock.pendingTimers).toBe(0);
});
