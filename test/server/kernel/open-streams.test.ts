import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import { type OpenStream, OpenStreams } from "../../../src/server/kernel/open-streams.ts";
import { WorkClock } from "../../work-clock.ts";
import { ownerOf } from "../limits/test-callers.ts";

class Stream implements OpenStream {
  readonly connection: object;
  readonly owner: object;
  readonly identity = anonymous;
  readonly access = undefined;
  evicted: WatchFanoutError | undefined;

  constructor(owner: object) {
    this.connection = owner;
    this.owner = owner;
  }

  evict(error: WatchFanoutError): void {
    this.evicted = error;
  }
}

/** Opens streams, and returns those that were accepted. */
function open(streams: OpenStreams, connection: object, count: number): Stream[] {
  const opened: Stream[] = [];
  for (let i = 0; i < count; i++) {
    if (streams.makeRoom(connection) !== undefined) continue;
    const stream = new Stream(connection);
    streams.add(stream);
    opened.push(stream);
  }
  return opened;
}

describe("The streams of a server", () => {
  test("are bounded, for one connection and for several", () => {
    const streams = new OpenStreams(10);
    expect(open(streams, {}, 12)).toHaveLength(10);
    expect(streams.makeRoom({ connection: "another" })).toBeUndefined();
    expect(streams.size).toBe(9);
  });

  test("are not counted after they have ended; a second delete has no effect", () => {
    const streams = new OpenStreams(2);
    const connection = {};
    const [first] = open(streams, connection, 2);
    expect(streams.makeRoom(connection)).toMatchObject({ reason: "TOO_MANY_STREAMS" });
    if (first !== undefined) streams.delete(first);
    if (first !== undefined) streams.delete(first);
    expect(streams.size).toBe(1);
    expect(streams.makeRoom(connection)).toBeUndefined();
  });

  test("of the connection with the most are ended for others, the oldest first, down to equal shares", () => {
    const streams = new OpenStreams(10);
    const [greedy, modest] = [{}, {}];
    const taken = open(streams, greedy, 10);
    const opened = open(streams, modest, 10);
    expect(opened).toHaveLength(5);
    expect(taken.map(({ evicted }) => evicted !== undefined)).toEqual(taken.map((_, i) => i < 5));
    expect(taken[0]?.evicted).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit: "10" },
    });
    expect(opened.every(({ evicted }) => evicted === undefined)).toBe(true);
    expect(open(streams, greedy, 10)).toEqual([]);
    expect(streams.size).toBe(10);
  });

  test("of a caller with many connections are ended for another caller, down to equal shares", () => {
    const streams = new OpenStreams(40);
    const taken = Array.from({ length: 20 }, () => open(streams, ownerOf({}, "10.0.0.1"), 2));
    const modest = ownerOf({}, "10.0.0.2");
    const opened = open(streams, modest, 30);
    expect(opened).toHaveLength(20);
    expect(opened.every(({ evicted }) => evicted === undefined)).toBe(true);
    expect(taken.flat().filter(({ evicted }) => evicted !== undefined)).toHaveLength(20);
    // Of the connections of that caller, each has one left.
    expect(taken.filter(([first]) => first?.evicted === undefined)).toEqual([]);
    const ofModest = [...streams].filter(({ owner }) => owner === modest);
    expect([ofModest.length, streams.size]).toEqual([20, 40]);
  });

  test("are all looked at in time slices, and beyond them only if the pass would take too long", () => {
    const clock = new WorkClock();
    const streams = new OpenStreams(10_000);
    for (let i = 0; i < 100; i++) open(streams, {}, 100);
    let looked = 0;
    streams.endEach(clock, () => {
      looked++;
      clock.spend(0.002);
      return undefined;
    });
    let longestMs = 0;
    while (looked < streams.size) {
      // A turn of 20 ms, so that there are 25 in the half second. In each the pass needs 0.8 ms.
      clock.spend(20);
      const before = clock.now();
      clock.runTurn();
      longestMs = Math.max(longestMs, clock.now() - before);
    }
    expect(clock.now()).toBeLessThan(500);
    expect(longestMs).toBeLessThan(turnMs + 64 * 0.002 + 0.001);
  });
});
