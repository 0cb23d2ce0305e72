import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import {
  type OpenStream,
  OpenStreams,
  type StreamOwner,
} from "../../../src/server/kernel/open-streams.ts";
import { WorkClock } from "../../work-clock.ts";
import { ownerOf } from "../limits/test-callers.ts";

class Stream implements OpenStream {
  readonly owner: StreamOwner;
  readonly identity = anonymous;
  readonly access = undefined;
  evicted: WatchFanoutError | undefined;

  constructor(owner: StreamOwner) {
    this.owner = owner;
  }

  evict(error: WatchFanoutError): void {
    this.evicted = error;
  }
}

/** The only caller of a new connection. */
function newOwner(): StreamOwner {
  return { connection: {} };
}

/** Opens streams, and returns those that were accepted. */
function open(streams: OpenStreams, owner: StreamOwner, count: number): Stream[] {
  const opened: Stream[] = [];
  for (let i = 0; i < count; i++) {
    if (streams.makeRoom(owner) !== undefined) continue;
    const stream = new Stream(owner);
    streams.add(stream);
    opened.push(stream);
  }
  return opened;
}

describe("The streams of a server", () => {
  test("are bounded, for one connection and for several", () => {
    const streams = new OpenStreams(10);
    expect(open(streams, newOwner(), 12)).toHaveLength(10);
    expect(streams.makeRoom(newOwner())).toBeUndefined();
    expect(streams.size).toBe(9);
  });

  test("are not counted after they have ended; a second delete has no effect", () => {
    const streams = new OpenStreams(2);
    const owner = newOwner();
    const [first] = open(streams, owner, 2);
    expect(streams.makeRoom(owner)).toMatchObject({ reason: "TOO_MANY_STREAMS" });
    if (first !== undefined) streams.delete(first);
    if (first !== undefined) streams.delete(first);
    expect(streams.size).toBe(1);
    expect(streams.makeRoom(owner)).toBeUndefined();
  });

  test("of the connection with the most are ended for others, the oldest first, down to equal shares", () => {
    const streams = new OpenStreams(10);
    const [greedy, modest] = [newOwner(), newOwner()];
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
    for (let i = 0; i < 100; i++) open(streams, newOwner(), 100);
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

  test("of a connection are those of all callers on it, and no others are looked at", () => {
    let looked = 0;
    const streams = new OpenStreams(10_000);
    for (let i = 0; i < 1_000; i++) {
      const other = {};
      const counted = {
        get connection() {
          looked++;
          return other;
        },
      };
      open(streams, counted, 1);
    }
    const connection = {};
    const opened = [ownerOf(connection, "10.0.0.1"), ownerOf(connection, "10.0.0.2")].flatMap(
      (owner) => open(streams, owner, 2),
    );
    looked = 0;
    expect([...streams.of(connection)]).toEqual(opened);
    expect(looked).toBe(0);
    for (const stream of opened) streams.delete(stream);
    expect([...streams.of(connection)]).toEqual([]);
    expect(streams.size).toBe(1_000);
  });
});
