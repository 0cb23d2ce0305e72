import { EventEmitter } from "node:events";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { expect, test } from "vitest";
import { quantumMs, turnMs } from "../../../src/base/event-loop-turns.ts";
import { TimeSliceScheduler } from "../../../src/base/time-slices.ts";
import { CallArrivals } from "../../../src/server/http2/call-arrivals.ts";
import { FakeClock } from "../../fake-clock.ts";

/** A clock whose time passes with the work. */
class WorkClock extends FakeClock {
  #spent = 0;

  override now(): number {
    return super.now() + this.#spent;
  }

  spend(ms: number): void {
    this.#spent += ms;
  }
}

class FakeStream extends EventEmitter {
  readonly session: ServerHttp2Session;
  destroyed = false;
  closed = false;

  constructor(session: object) {
    super();
    this.session = session as ServerHttp2Session;
  }
}

/** Each call takes `ms` milliseconds to open, and is logged by its path. */
function arriving(ms: number) {
  const clock = new WorkClock();
  const taken: string[] = [];
  const scheduler = new TimeSliceScheduler(clock, Infinity);
  const arrivals = new CallArrivals(clock, scheduler, (_stream, headers) => {
    clock.spend(ms);
    taken.push(headers[":path"] ?? "");
  });
  const add = (connection: object, path: string): FakeStream => {
    const stream = new FakeStream(connection);
    const headers: IncomingHttpHeaders = { ":path": path };
    arrivals.add(stream as unknown as ServerHttp2Stream, headers);
    return stream;
  };
  return { clock, taken, arrivals, add };
}

function numbered(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}${i}`);
}

test("A few calls of a connection are opened on arrival, in every turn", () => {
  const { clock, taken, add } = arriving(1);
  const connection = {};
  for (let turn = 0; turn < 3; turn++) {
    taken.length = 0;
    for (const path of numbered("a", 16)) add(connection, path);
    expect(taken).toEqual(numbered("a", 16));
    clock.runTurn();
    clock.runTurn();
  }
  expect(clock.pendingImmediates).toBe(0);
});

test("A flood of calls is opened in order, in time slices", () => {
  const { clock, taken, arrivals, add } = arriving(quantumMs / 2);
  const connection = {};
  for (const path of numbered("a", 1_000)) add(connection, path);
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBeGreaterThan(950);
  for (let turns = 0; taken.length < 1_000; turns++) {
    const before = clock.now();
    clock.runTurn();
    expect(clock.now() - before).toBeLessThanOrEqual(turnMs);
    expect(turns).toBeLessThan((2 * 1_000 * quantumMs) / turnMs);
  }
  expect(taken).toEqual(numbered("a", 1_000));
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBe(0);
});

test("New calls wait behind earlier ones, and floods alternate by time slice", () => {
  const { clock, taken, add } = arriving(quantumMs / 2);
  const [first, second] = [{}, {}];
  for (const path of numbered("a", 500)) add(first, path);
  clock.runTurn();
  for (const path of numbered("b", 100)) add(second, path);
  add(first, "last");
  clock.runImmediates();
  expect(taken.indexOf("b99")).toBeLessThan(taken.indexOf("a400"));
  expect(taken.filter((path) => !path.startsWith("b"))).toEqual([...numbered("a", 500), "last"]);
});

test("A call that has ended while it waits is not opened, and its error has no effect", () => {
  const { clock, taken, arrivals, add } = arriving(quantumMs / 2);
  const connection = {};
  const streams = numbered("a", 100).map((path) => add(connection, path));
  for (const stream of streams) {
    stream.destroyed = true;
    if (stream.listenerCount("error") > 0) stream.emit("error", new Error("reset"));
  }
  const before = taken.length;
  clock.runImmediates();
  expect(taken.length).toBe(before);
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBe(0);
});

test("A call whose connection is closed is opened at once, to be ended", () => {
  const { taken, arrivals } = arriving(0);
  const stream = { session: undefined } as unknown as ServerHttp2Stream;
  arrivals.add(stream, { ":path": "a" });
  expect(taken).toEqual(["a"]);
});
