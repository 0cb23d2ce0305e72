import { describe, expect, test } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { maxOpeningMs, StreamOpenings } from "../../../src/server/calls/stream-openings.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { WorkClock } from "../../work-clock.ts";
import { WaitingCall } from "./waiting-call.ts";

function setUp(bounds = { max: 1_000, maxPerOwner: 1_000 }) {
  const clock = new WorkClock();
  const pool = new Ledger(bounds);
  const openings = new StreamOpenings(clock, pool);
  const opened: string[] = [];
  const calls: WaitingCall[] = [];
  /** A call that takes a quarter of a time slice to open. */
  const add = (connection: object, name: string, bytes: number = 1): WaitingCall => {
    const call = new WaitingCall(connection);
    calls.push(call);
    openings.add(call, bytes, () => {
      clock.spend(turnMs / 4);
      opened.push(name);
    });
    return call;
  };
  return { clock, pool, openings, opened, add };
}

describe("Streams are opened", () => {
  test("at once if none is ahead", () => {
    const { opened, add, openings } = setUp();
    const connection = {};
    add(connection, "a");
    expect(opened).toEqual(["a"]);
    expect(openings.waiting(connection)).toBe(0);
  });

  test("in time slices, between which other work runs", () => {
    const { clock, opened, add } = setUp();
    const connection = {};
    for (let i = 0; i < 10; i++) add(connection, `a${i}`);
    const perTurn = [opened.splice(0).length];
    while (perTurn.length < 4) {
      clock.runTurn();
      perTurn.push(opened.splice(0).length);
    }
    expect(Math.max(...perTurn)).toBeLessThanOrEqual(4);
    expect(perTurn.reduce((sum, count) => sum + count)).toBe(10);
  });

  test("in rotation by connection, regardless of their number", () => {
    const { clock, opened, add } = setUp();
    const [busy, other] = [{}, {}];
    for (let i = 0; i < 1_000; i++) add(busy, "busy");
    add(other, "other");
    const before = opened.length;
    for (let turns = 0; turns < 2; turns++) clock.runTurn();
    expect(opened.slice(before)).toContain("other");
    expect(opened.length).toBeLessThan(20);
  });

  test("at no cost if they have ended by then", () => {
    const { clock, opened, add, openings, pool } = setUp();
    const connection = {};
    const calls = Array.from({ length: 1_000 }, (_, i) => add(connection, `a${i}`));
    for (const call of calls.slice(4)) call.reset();
    expect(openings.waiting(connection)).toBe(0);
    expect(pool.total).toBe(0);
    clock.runImmediates();
    expect(opened).toHaveLength(4);
  });

  test("unless they have waited for a minute: those are refused, and later ones opened", () => {
    const { clock, opened, add } = setUp();
    const connection = {};
    const calls = Array.from({ length: 9 }, (_, i) => add(connection, `a${i}`));
    const before = opened.length;
    expect(before).toBeGreaterThan(0);
    clock.spend(maxOpeningMs + 1);
    add(connection, "late");
    for (let turns = 0; turns < 10; turns++) clock.runTurn();
    expect(opened.slice(before)).toEqual(["late"]);
    const ended = calls.slice(before).map((call) => call.ended?.code);
    expect(ended).toEqual(ended.map(() => 14));
  });

  test("never for a call that has ended without an event", () => {
    const { clock, opened, add } = setUp();
    const connection = {};
    const calls = Array.from({ length: 8 }, (_, i) => add(connection, `a${i}`));
    for (const call of calls) call.isOver = true;
    clock.runImmediates();
    expect(opened.length).toBeLessThanOrEqual(4);
  });
});

describe("The memory of waiting requests", () => {
  test("is bounded, and the connection that has most loses the largest", () => {
    const { clock, opened, add, pool } = setUp();
    const [greedy, modest] = [{}, {}];
    for (let i = 0; i < 4; i++) add(greedy, "first");
    const waiting = [add(modest, "modest", 100)];
    for (let i = 0; i < 9; i++) waiting.push(add(greedy, `greedy${i}`, 100 + i));
    const late = add(modest, "late", 100);
    expect(pool.total).toBeLessThanOrEqual(1_000);
    const ended = [...waiting, late].filter((call) => call.ended !== undefined);
    expect(ended.map(({ connection }) => connection === greedy)).toEqual(ended.map(() => true));
    expect(ended[0]?.ended?.code).toBe(8);
    clock.runImmediates();
    expect(opened).toContain("late");
    expect(opened).not.toContain("greedy8");
    expect(pool.total).toBe(0);
  });
});
