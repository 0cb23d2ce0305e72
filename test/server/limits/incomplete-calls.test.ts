import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { tooManyIncomplete } from "../../../src/server/calls/refusals.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import type { Caller } from "../../../src/server/limits/callers.ts";
import { writeService } from "../../../src/wire/services.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { serveThings } from "../served.ts";
import { callerLimits, named } from "./test-callers.ts";

const { Put } = writeService;

const { callers } = callerLimits(new FakeClock());

/** The caller of an identity. */
function callerNamed(name: string): Caller {
  return callers.ownerOf({ connection: {}, identity: named(name), address: "10.0.0.1:1" }).caller;
}

describe("Calls whose request has not arrived", () => {
  /** Counts calls of callers by name. */
  function counting(maxIncompleteCalls: number, maxIncompleteCallsPerCaller: number) {
    const calls = new Ledger<Caller>({
      max: maxIncompleteCalls,
      maxPerOwner: maxIncompleteCallsPerCaller,
    });
    const evicted: string[] = [];
    const reasons: string[] = [];
    const add = (name: string, call: string) => {
      const caller = callerNamed(name);
      return calls.reserve(caller, 1, (bound) => {
        evicted.push(call);
        reasons.push(tooManyIncomplete(calls.bounds, bound, caller).details);
      });
    };
    return { calls, evicted, reasons, add };
  }

  test("of one caller are bounded: beyond that it loses its oldest", () => {
    const { calls, evicted, reasons, add } = counting(100, 2);
    add("a", "a1");
    add("b", "b1");
    add("a", "a2");
    expect(evicted).toEqual([]);
    add("a", "a3");
    add("a", "a4");
    expect(evicted).toEqual(["a1", "a2"]);
    expect(reasons[0]).toContain(
      'The limit of calls whose request has not arrived, of the identity "a", is 2.',
    );
    expect([calls.total, calls.evictions]).toEqual([3, 2]);
  });

  test("of all callers are bounded: the caller with the most loses its oldest, also for a call of another", () => {
    const { evicted, reasons, add } = counting(5, 4);
    for (const name of ["a1", "a2", "a3"]) add("a", name);
    for (const name of ["b1", "b2"]) add("b", name);
    add("c", "c1");
    expect(evicted).toEqual(["a1"]);
    expect(reasons[0]).toContain("of all callers together, is 5");
    add("c", "c2");
    add("b", "b3");
    expect(evicted).toEqual(["a1", "a2", "b1"]);
  });

  test("are counted by caller also as they are released", () => {
    const { evicted, add } = counting(7, 5);
    const ofA = ["a1", "a2", "a3", "a4"].map((name) => add("a", name));
    for (const name of ["b1", "b2", "b3"]) add("b", name);
    for (const call of ofA.slice(0, 2)) call.release();
    for (const name of ["c", "d", "e"]) add(name, name);
    expect(evicted).toEqual(["b1"]);
    for (const call of ofA) call.release();
    for (const name of ["f", "g", "h"]) add(name, name);
    expect(evicted).toEqual(["b1", "b2"]);
    add("i", "i");
    expect(evicted.length).toBe(3);
  });

  test("count no more once they are released, and are not evicted then", () => {
    const { calls, evicted, add } = counting(3, 1);
    const first = add("a", "a1");
    first.release();
    first.release();
    const second = add("a", "a2");
    add("a", "a3");
    second.release();
    expect(evicted).toEqual(["a2"]);
    expect(calls.total).toBe(1);
  });
});

describe("A client that opens calls and sends no request", () => {
  const limits = { maxIncompleteCalls: 50, maxIncompleteCallsPerCaller: 20 };

  function opened(raw: RawConnection, count: number): RawCall[] {
    return Array.from({ length: count }, () => raw.open(Put.path).drain());
  }

  test("has a bounded number of them on all of its connections, and loses the oldest", async () => {
    const served = await serveThings({ server: { limits } });
    const connections = Array.from({ length: 3 }, () => new RawConnection(served.server.port));
    const first = connections.flatMap((raw) => opened(raw, 5));
    await served.recorder.untilStarted(15);
    const other = new RawConnection(served.server.port, undefined, "127.0.0.2");
    const ofOther = opened(other, 15);
    await served.recorder.untilStarted(30);
    const [second] = connections;
    if (second === undefined) throw new Error("There is no connection.");
    const last = opened(second, 10);
    const ends = await Promise.all(first.slice(0, 5).map((call) => call.ended));
    for (const { code, message } of ends) {
      expect(code).toBe(status.RESOURCE_EXHAUSTED);
      expect(message).toMatch(/request has not arrived, of anonymous at 127\.0\.0\.1, is 20\./);
    }
    await served.client.list({ resource: "things" });
    expect([...last, ...ofOther].every((call) => !call.stream.closed)).toBe(true);
    expect(served.server.stats().requests.evictions).toBe(5);
  });

  test("does not keep others of its host from sending theirs", async () => {
    const served = await serveThings({ server: { limits } });
    opened(new RawConnection(served.server.port), 40);
    await served.recorder.untilStarted(40);
    const request = Put.requestSerialize({ resource: "things", key: "a", value: Buffer.of(1) });
    const raw = new RawConnection(served.server.port);
    for (let i = 0; i < 30; i++) {
      expect((await raw.call(Put.path, request).drain().ended).code).toBe(status.OK);
    }
  });
});
