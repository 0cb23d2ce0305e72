import { EventEmitter } from "node:events";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { expect, test } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { CallArrivals } from "../../../src/server/http2/call-arrivals.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { WorkClock } from "../../work-clock.ts";

class FakeStream extends EventEmitter {
  readonly session: ServerHttp2Session;
  destroyed = false;
  closed = false;

  constructor(session: object) {
    super();
    this.session = session as ServerHttp2Session;
  }

  close(): void {
    this.closed = true;
  }
}

/** Calls take `ms` each to start, and are logged by their path. Their headers may take `maxBytes` while they wait. */
function arriving(ms: number, maxBytes = 10 * 1024 ** 2) {
  const clock = new WorkClock();
  const taken: string[] = [];
  const pool = new Ledger({ max: maxBytes, maxPerOwner: maxBytes });
  const arrivals = new CallArrivals(clock, pool, (_stream, headers) => {
    clock.spend(ms);
    taken.push(headers[":path"] ?? "");
  });
  const add = (connection: object, path: string, metadata = "", forwarded?: object): FakeStream => {
    const stream = new FakeStream(connection);
    const headers: IncomingHttpHeaders = { ":path": path, metadata };
    arrivals.add(stream as unknown as ServerHttp2Stream, headers, forwarded);
    return stream;
  };
  return { clock, taken, arrivals, add, pool };
}

function numbered(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}${i}`);
}

test("A few calls of a connection start as they arrive, in every turn", () => {
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

test("A flood of calls starts in order, 16 calls a turn", () => {
  const { clock, taken, arrivals, add } = arriving(0);
  const connection = {};
  for (const path of numbered("a", 1_000)) add(connection, path);
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBeGreaterThan(950);
  while (taken.length < 1_000) {
    const before = taken.length;
    clock.runTurn();
    expect(taken.length - before).toBe(Math.min(16, 1_000 - before));
  }
  expect(taken).toEqual(numbered("a", 1_000));
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBe(0);
});

test("A turn ends early where calls take longer than its time slice", () => {
  const { clock, taken, add } = arriving(turnMs / 4);
  const connection = {};
  for (const path of numbered("a", 100)) add(connection, path);
  const before = taken.length;
  clock.runTurn();
  expect(taken.length - before).toBe(4);
});

test("Calls that arrive while others wait start after them, and connections take turns", () => {
  const { clock, taken, add } = arriving(0);
  const [first, second] = [{}, {}];
  for (const path of numbered("a", 500)) add(first, path);
  clock.runTurn();
  for (const path of numbered("b", 100)) add(second, path);
  add(first, "last");
  clock.runImmediates();
  expect(taken.indexOf("b99")).toBeLessThan(taken.indexOf("a400"));
  expect(taken.filter((path) => !path.startsWith("b"))).toEqual([...numbered("a", 500), "last"]);
});

test("A call that ends before it starts never starts, and its error ends nothing", () => {
  const { clock, taken, arrivals, add } = arriving(0);
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

test("A call whose connection is closed starts at once, to be ended", () => {
  const { taken, arrivals } = arriving(0);
  const stream = { session: undefined } as unknown as ServerHttp2Stream;
  arrivals.add(stream, { ":path": "a" });
  expect(taken).toEqual(["a"]);
});

test("The headers of waiting calls are bounded in bytes; above the bound the largest are reset", () => {
  const { clock, taken, arrivals, add, pool } = arriving(0, 100_000);
  const connection = {};
  const small = numbered("small", 40).map((path) => add(connection, path));
  const large = numbered("large", 20).map((path) => add(connection, path, "m".repeat(10_000)));
  expect(arrivals.waiting(connection as ServerHttp2Session)).toBeLessThan(35);
  expect(pool.total).toBeLessThanOrEqual(100_000);
  expect(pool.total).toBeGreaterThan(80_000);
  clock.runImmediates();
  expect(small.filter(({ closed }) => closed)).toEqual([]);
  const refused = large.filter(({ closed }) => closed);
  expect(refused.length).toBeGreaterThan(10);
  expect(taken).toHaveLength(60 - refused.length);
  expect(pool.total).toBe(0);
});

test("Calls of a proxy take turns by the identity that it forwards, those of each in order", () => {
  const { clock, taken, arrivals, add } = arriving(0);
  const proxy = {};
  const [alice, bob] = [{}, {}];
  for (const path of numbered("a", 500)) add(proxy, path, "", alice);
  for (const path of numbered("b", 20)) add(proxy, path, "", bob);
  for (const path of numbered("own", 20)) add(proxy, path);
  const session = proxy as ServerHttp2Session;
  expect(arrivals.waiting(session)).toBe(540 - taken.length);
  while (!taken.includes("b19")) clock.runTurn();
  expect(taken.filter((path) => path.startsWith("a")).length).toBeLessThanOrEqual(16 + 20);
  clock.runImmediates();
  for (const name of ["a", "b", "own"]) {
    const own = taken.filter((path) => path.startsWith(name));
    expect(own).toEqual(numbered(name, own.length));
  }
  expect(taken).toHaveLength(540);
  expect(arrivals.waiting(session)).toBe(0);
});

test("The memory of waiting calls that a proxy forwards is that of their identity", () => {
  const { add, pool } = arriving(0, 100_000);
  const proxy = {};
  const [alice, bob] = [{}, {}];
  for (const path of numbered("a", 200)) add(proxy, path, "", alice);
  const held = numbered("b", 20).map((path) => add(proxy, path, "m".repeat(500), bob));
  expect(pool.of(bob)).toBeGreaterThan(0);
  expect(held.filter(({ closed }) => closed)).toEqual([]);
});
