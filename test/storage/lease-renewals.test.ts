import { describe, expect, test } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../src/base/errors.ts";
import {
  endedLease,
  LeaseRenewals,
  type RenewalListener,
  type RenewalStream,
} from "../../src/storage/lease-renewals.ts";
import { FakeClock } from "../fake-clock.ts";

const lengthMs = 10_000;
const denied = new WatchFanoutError("UPSTREAM_DENIED", "No.");

/** A stream to a store that answers on request. */
class ScriptedStream implements RenewalStream {
  readonly sent: (readonly bigint[])[] = [];
  readonly listener: RenewalListener;
  closed: "stalled" | "closed" | undefined;
  #unanswered = 0;

  constructor(listener: RenewalListener) {
    this.listener = listener;
  }

  send(leases: readonly bigint[]): void {
    this.sent.push(leases);
    this.#unanswered += leases.length;
  }

  close(hasStalled: boolean): void {
    this.closed = hasStalled ? "stalled" : "closed";
  }

  /** Answers what was sent, or the first of it. */
  answer(count: number = this.#unanswered, outcome: number | Error = lengthMs): void {
    this.#unanswered -= count;
    this.listener.renewed(new Array<number | Error>(count).fill(outcome));
  }
}

function start(refusal?: Error) {
  const clock = new FakeClock();
  const streams: ScriptedStream[] = [];
  const renewals = new LeaseRenewals({
    clock,
    timeoutMs: 5_000,
    open: async (listener) => {
      if (refusal !== undefined) throw refusal;
      const stream = new ScriptedStream(listener);
      streams.push(stream);
      return stream;
    },
  });
  /** Lets 5 ms pass, after which what was asked for is sent. */
  const send = async (): Promise<void> => {
    clock.advance(5);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const last = (): ScriptedStream => streams.at(-1) as ScriptedStream;
  return { clock, streams, renewals, send, last };
}

const unavailable = expect.objectContaining({ reason: "UPSTREAM_UNAVAILABLE" });

describe("Renewals of leases", () => {
  test("that are asked for within 5 ms are sent together, each lease once", async () => {
    const { clock, renewals, send, last } = start();
    const first = renewals.renew([1n, 2n, 1n]);
    clock.advance(4);
    const second = renewals.renew([2n, 3n]);
    await send();
    expect(last().sent).toEqual([[1n, 3n, 2n]]);
    last().answer();
    expect(await first).toEqual([lengthMs, lengthMs, lengthMs]);
    expect(await second).toEqual([lengthMs, lengthMs]);
    expect(renewals.size).toBe(0);
  });

  test("that are asked for while one is under way are one more, at least 300 ms later", async () => {
    const { clock, renewals, send, last } = start();
    const first = renewals.renew([1n]);
    await send();
    // The lease may have ended after the first was handled.
    const later = [renewals.renew([1n]), renewals.renew([1n])];
    last().answer();
    expect(await first).toEqual([lengthMs]);
    clock.advance(299);
    later.push(renewals.renew([1n]));
    expect(last().sent).toHaveLength(1);
    clock.advance(1);
    expect(last().sent).toEqual([[1n], [1n]]);
    last().answer(1, endedLease);
    expect(await Promise.all(later)).toEqual([[endedLease], [endedLease], [endedLease]]);
  });

  test("say how long a lease lasts, counted from when they were sent", async () => {
    const { clock, renewals, send, last } = start();
    const renewed = renewals.renew([1n]);
    await send();
    clock.advance(1_500);
    last().answer();
    expect(await renewed).toEqual([lengthMs - 1_500]);
  });

  test("of a large request do not delay those of a small one", async () => {
    const { renewals, send, last } = start();
    const large = renewals.renew(Array.from({ length: 5_000 }, (_, i) => BigInt(i + 1)));
    const small = renewals.renew([10_000n]);
    await send();
    expect(last().sent[0]?.slice(0, 3)).toEqual([1n, 10_000n, 2n]);
    last().answer(2);
    expect(await small).toEqual([lengthMs]);
    // As many are under way as before.
    expect(last().sent.map(({ length }) => length)).toEqual([1_000, 2]);
    for (let left = 4_999; left > 0; left -= 500) last().answer(Math.min(500, left));
    expect(await large).toHaveLength(5_000);
  });

  test("without an outcome are sent again when their stream ends, and its later answers are dropped", async () => {
    const { clock, streams, renewals, send, last } = start();
    const renewed = renewals.renew([1n, 2n, 3n]);
    await send();
    last().answer(1);
    const again = renewals.renew([3n]);
    last().listener.ended(upstreamUnavailable("Gone."));
    await send();
    expect(streams.map(({ sent }) => sent)).toEqual([[[1n, 2n, 3n]], [[2n, 3n]]]);
    streams[0]?.answer(1, denied);
    clock.advance(1_000);
    streams[1]?.answer(2);
    expect(await renewed).toEqual([lengthMs, lengthMs - 1_000, lengthMs - 1_000]);
    // It was asked for before that was sent.
    expect(await again).toEqual([lengthMs - 1_000]);
  });

  test("go to another stream if theirs has answered nothing for two seconds", async () => {
    const { clock, streams, renewals, send, last } = start();
    const renewed = renewals.renew([1n]);
    await send();
    clock.advance(2_000 + 250);
    await send();
    expect(streams.map(({ closed }) => closed)).toEqual(["stalled", undefined]);
    clock.advance(10);
    last().answer();
    expect(await renewed).toEqual([lengthMs - 10]);
  });

  test("fail after five seconds, and the next one is sent nevertheless", async () => {
    const { clock, streams, renewals, send } = start();
    const failed = renewals.renew([1n]);
    for (let i = 0; i < 25; i++) {
      clock.advance(250);
      await send();
      streams.at(-1)?.listener.ended(upstreamUnavailable("Refused."));
    }
    expect(await failed).toEqual([unavailable]);
    expect([renewals.size, renewals.requests]).toEqual([0, 0]);
    const next = renewals.renew([1n]);
    clock.advance(300);
    await send();
    clock.advance(100);
    await send();
    streams.at(-1)?.answer();
    expect(await next).toEqual([expect.any(Number)]);
  });

  test("fail at once if the store refuses them", async () => {
    const { renewals, send } = start(denied);
    const refused = renewals.renew([1n, 2n]);
    await send();
    expect(await refused).toEqual([denied, denied]);
  });

  test("leave nothing behind when no stream can be opened for long", async () => {
    const { clock, renewals, send } = start(upstreamUnavailable("Refused."));
    const failed = [renewals.renew([1n, 2n]), renewals.renew([3n])];
    for (let i = 0; i < 21; i++) {
      clock.advance(250);
      await send();
    }
    expect(await Promise.all(failed)).toEqual([[unavailable, unavailable], [unavailable]]);
    expect([renewals.size, renewals.requests]).toEqual([0, 0]);
  });

  test("end with their caller's signal, and with all", async () => {
    const { renewals, send, last, clock } = start();
    const stopping = new AbortController();
    const stopped = renewals.renew([1n], stopping.signal);
    const others = renewals.renew([1n, 2n]);
    await send();
    const reason = new Error("stop");
    stopping.abort(reason);
    await expect(stopped).rejects.toBe(reason);
    renewals.close(denied);
    expect(await others).toEqual([denied, denied]);
    expect(last().closed).toBe("closed");
    expect(await renewals.renew([3n])).toEqual([denied]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("are refused above their maximum, each by itself", async () => {
    const { renewals } = start();
    const most = renewals.renew(Array.from({ length: 100_000 }, (_, i) => BigInt(i + 1)));
    const overloaded = expect.objectContaining({ reason: "OVERLOADED" });
    expect(await renewals.renew([200_000n, 200_001n])).toEqual([overloaded, overloaded]);
    renewals.close(denied);
    expect(new Set(await most)).toEqual(new Set([denied]));
  });
});
