import { describe, expect, test } from "vitest";
import type { SendReservation } from "../../../src/server/limits/send-budget.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import { FakeClock } from "../../fake-clock.ts";
import { ownerOf } from "./test-callers.ts";

/** Above 5,000 bytes others wait. */
const bounds = { maxBytesPerConnection: 1_000, maxBytes: 10_000 };

function budget(): { budget: SendBudget; clock: FakeClock } {
  const clock = new FakeClock();
  return { budget: new SendBudget(clock, bounds), clock };
}

/** A response of this size, with its own memory. */
function answer(bytes: number): Uint8Array[] {
  return [new Uint8Array(bytes)];
}

const nothing = (): void => {};

describe("A connection", () => {
  test("reserves room up to its bound; further responses wait, in order", () => {
    const { budget: all } = budget();
    const connection = {};
    const first = all.take(connection, 600);
    expect(first).toBeDefined();
    expect(all.take(connection, 600)).toBeUndefined();
    const served: string[] = [];
    all.wait(connection, 600, () => served.push("second"));
    all.wait(connection, 100, () => served.push("third"));
    // There is room for the third, but it waits behind the second.
    expect(all.take(connection, 1)).toBeUndefined();
    expect(served).toEqual([]);
    first?.release();
    expect(served).toEqual(["second", "third"]);
    expect(all.bytesOf(connection)).toBe(700);
  });

  test("may have one response above its bound", () => {
    const { budget: all } = budget();
    expect(all.take({}, 5_000)).toBeDefined();
  });

  test("releases the difference if a response is smaller than expected", () => {
    const { budget: all } = budget();
    const connection = {};
    const share = all.take(connection, 1_000);
    let isServed = false;
    all.wait(connection, 900, () => {
      isServed = true;
    });
    share?.send(answer(100), nothing);
    expect(isServed).toBe(true);
  });

  test("serves the remaining waits when others are cancelled", () => {
    const { budget: all } = budget();
    const connection = {};
    const share = all.take(connection, 600);
    const served: string[] = [];
    const giveUp = all.wait(connection, 1_000, () => served.push("large"));
    all.wait(connection, 400, () => served.push("small"));
    giveUp();
    giveUp();
    expect(served).toEqual(["small"]);
    share?.release();
    share?.release();
    expect(served).toEqual(["small"]);
    expect(all.bytesOf(connection)).toBe(400);
  });

  test("wakes waits of unknown size in order, and stops", () => {
    const { budget: all } = budget();
    const connection = {};
    const share = all.take(connection, 1_001);
    let woken = 0;
    const wait = (): void => void all.whenMayBuild(connection, () => woken++);
    expect(all.mayBuild(connection)).toBe(false);
    wait();
    wait();
    share?.release();
    expect(woken).toBe(2);
    expect(all.mayBuild(connection)).toBe(true);
  });
});

describe("All connections together", () => {
  /** Connections with unaccepted responses of this size, and which of them were evicted. */
  function fill(all: SendBudget, count: number, bytes: number): number[] {
    const evicted: number[] = [];
    for (let i = 0; i < count; i++) {
      all.take({}, bytes)?.send(answer(bytes), () => evicted.push(i));
    }
    return evicted;
  }

  test("count memory that responses share once, and each part as an object", () => {
    const { budget: all } = budget();
    const shared = new Uint8Array(4_000);
    const shares = [1, 2, 3].map(() => all.take({}, 100));
    for (const share of shares) share?.send([shared.subarray(0, 100)], nothing);
    expect(all.bytes).toBe(4_000 + 3 * 128);
    for (const share of shares) share?.release();
    expect(all.bytes).toBe(0);
  });

  test("are full above half of their bound: then new responses wait", () => {
    const { budget: all } = budget();
    fill(all, 5, 900);
    expect(all.isFull).toBe(true);
    expect(all.mayBuild({})).toBe(false);
  });

  test("make room for waiting responses by evicting one that was not accepted for 10 s", () => {
    const { budget: all, clock } = budget();
    const evicted = fill(all, 6, 900);
    const served: string[] = [];
    all.whenNotFull({}, () => served.push("a"));
    clock.advance(9_000);
    expect([served, evicted]).toEqual([[], []]);
    clock.advance(2_000);
    expect(served).toEqual(["a"]);
    // 1,028 bytes each: five of them are more than half of 10,000.
    expect(evicted).toEqual([0, 1]);
    expect(all.evictions).toBe(2);
  });

  test("serve waiting responses round-robin by connection", () => {
    const { budget: all } = budget();
    const shares = Array.from({ length: 6 }, () => all.take({}, 900));
    for (const share of shares) share?.send(answer(900), nothing);
    const served: string[] = [];
    const [a, b] = [{}, {}];
    for (const name of ["a1", "a2", "a3"]) all.whenNotFull(a, () => served.push(name));
    const giveUp = all.whenNotFull(b, () => served.push("b1"));
    all.whenNotFull(b, () => served.push("b2"));
    giveUp();
    for (const share of shares) share?.release();
    expect(served).toEqual(["a1", "b2", "a2", "a3"]);
  });

  test("of a caller with many connections are evicted, and served, like those of another with one", () => {
    const hosts = new Map<object, string>();
    const connect = (host: string): object => {
      const connection = {};
      hosts.set(connection, host);
      return connection;
    };
    const all = new SendBudget(new FakeClock(), bounds, (connection) =>
      ownerOf(connection, hosts.get(connection)),
    );
    const evicted: string[] = [];
    const send = (host: string, bytes: number): void =>
      all.force(connect(host)).send(answer(bytes), () => evicted.push(host));
    send("10.0.0.2", 900);
    for (let i = 0; i < 30; i++) send("10.0.0.1", 400);
    expect(evicted.length).toBeGreaterThan(0);
    expect(new Set(evicted)).toEqual(new Set(["10.0.0.1"]));
    const served: string[] = [];
    for (let i = 0; i < 3; i++) all.whenNotFull(connect("10.0.0.1"), () => served.push("many"));
    const one = connect("10.0.0.2");
    for (let i = 0; i < 2; i++) all.whenNotFull(one, () => served.push("one"));
    while (all.isFull) all.evict(Infinity);
    expect(served).toEqual(["many", "one", "many", "one", "many"]);
  });

  test("never exceed their bound: the connection that holds most loses its largest response", () => {
    const { budget: all } = budget();
    const evicted: string[] = [];
    const large = {};
    for (const bytes of [300, 400]) {
      all.force(large).send(answer(bytes), () => evicted.push(`large ${bytes}`));
    }
    for (let i = 0; i < 15; i++) all.force({}).send(answer(500), () => evicted.push("other"));
    expect(all.bytes).toBeLessThanOrEqual(10_000);
    expect(evicted).toEqual(["large 400"]);
  });
});

describe("Room across all connections that is granted in one step and used in a later one", () => {
  /** Waits for room for responses of this size, of a connection each. Returns the reservations that were granted. */
  function claimEach(all: SendBudget, count: number, bytes: number): SendReservation[] {
    const granted: SendReservation[] = [];
    for (let i = 0; i < count; i++) {
      const connection = {};
      all.whenMayBuild(connection, () => {
        const reservation = all.force(connection, bytes);
        reservation.claim();
        granted.push(reservation);
      });
    }
    return granted;
  }

  function full(all: SendBudget): SendReservation {
    const reservation = all.force({});
    reservation.send(answer(6_000), nothing);
    return reservation;
  }

  test("counts until it is used, so that one grant does not wake all that wait", () => {
    const { budget: all } = budget();
    const holder = full(all);
    const granted = claimEach(all, 10, 2_000);
    expect(granted).toEqual([]);
    holder.release();
    expect([granted.length, all.isFull, all.bytes]).toEqual([3, true, 0]);
    for (const reservation of granted) reservation.send(answer(2_000), nothing);
    expect([granted.length, all.evictions]).toEqual([3, 0]);
  });

  test("is passed on as far as the response does not need it, and if none is sent", () => {
    const { budget: all } = budget();
    const holder = full(all);
    const granted = claimEach(all, 10, 4_000);
    holder.release();
    expect(granted).toHaveLength(2);
    granted[0]?.send(answer(100), nothing);
    expect(granted).toHaveLength(3);
    granted[1]?.release();
    granted[1]?.release();
    expect(granted).toHaveLength(4);
    // Those that are granted meanwhile as well.
    for (const reservation of granted) reservation.release();
    expect([granted.length, all.isFull, all.bytes]).toEqual([10, false, 0]);
  });
});

describe("A response of unknown size", () => {
  test("waits for room across all connections and on its own, whichever comes first", () => {
    const { budget: all } = budget();
    const connection = {};
    const own = all.force(connection, 1_001);
    const others = all.force({});
    others.send(answer(6_000), nothing);
    let woken = 0;
    all.whenMayBuild(connection, () => woken++);
    others.release();
    expect([all.isFull, woken]).toEqual([false, 0]);
    const more = all.force({});
    more.send(answer(6_000), nothing);
    own.release();
    expect([all.mayBuild(connection), woken]).toEqual([false, 0]);
    more.release();
    expect([all.mayBuild(connection), woken]).toEqual([true, 1]);
  });

  test("does not wait any more once the wait is stopped, wherever it is", () => {
    const { budget: all } = budget();
    const connection = {};
    const own = all.force(connection, 1_001);
    const others = all.force({});
    others.send(answer(6_000), nothing);
    let woken = 0;
    const stop = all.whenMayBuild(connection, () => woken++);
    others.release();
    stop();
    own.release();
    expect([woken, all.mayBuild(connection)]).toEqual([0, true]);
  });
});
