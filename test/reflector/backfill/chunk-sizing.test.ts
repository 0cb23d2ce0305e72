import { describe, expect, test } from "vitest";
import { ChunkSizing } from "../../../src/reflector/backfill/chunk-sizing.ts";
import type { PastEvents } from "../../../src/reflector/backfill/past-events.ts";
import { event } from "../../cacher/objects.ts";

const unbounded = { events: Infinity, bytes: Infinity };

/** A chunk of this many revisions, of which one in `every` has `each` events of the resource, of `bytes` each. */
function piece(revisions: number, every: number, each: number, bytes: number): PastEvents {
  const events = Array.from({ length: Math.floor(revisions / every) }, (_, i) =>
    Array.from({ length: each }, (_, k) => event("MODIFIED", `${k}`, (i + 1) * every)),
  ).flat();
  return { after: 0, upTo: revisions, events, bytes: events.length * bytes };
}

/** The sizes of the first chunks, as watches x revisions, if all of the past is alike. */
function sizes(every: number, each: number, bytes: number, left: number = 1_000_000): string[] {
  const sizing = new ChunkSizing();
  return Array.from({ length: 6 }, () => {
    const { watches, revisions } = sizing.next(left, unbounded);
    sizing.record(piece(watches * revisions, every, each, bytes));
    return `${watches}x${revisions}`;
  });
}

describe("Chunks of the past", () => {
  test("begin small, and grow to the maximum number of concurrent watches", () => {
    expect(sizes(1, 1, 600)).toEqual(["1x50", "1x200", "1x800", "4x800", "14x915", "16x950"]);
  });

  test("have few revisions if each has many events, but at least as many as one watch is sent", () => {
    expect(sizes(1, 50, 600)).toEqual(["1x50", "1x200", "1x800", "1x950", "1x950", "1x950"]);
  });

  test("have few revisions if objects are large", () => {
    // 16 MiB of 64 KiB each.
    expect(sizes(1, 1, 65_536)).toEqual(["1x50", "1x200", "1x512", "1x512", "1x512", "1x512"]);
  });

  test("have many revisions per watch if most have no events of the resource", () => {
    expect(sizes(100, 1, 600)).toEqual([
      ...["1x50", "1x200", "1x800", "1x3200", "1x12800", "1x51200"],
    ]);
  });

  test("are read by fewer watches if responses may exceed half of the share that each watch has", () => {
    // 16 MiB of 2.5 KiB each are 6,553 revisions: seven watches of 2.3 MiB are above half of a sixteenth of 64 MiB.
    expect(sizes(1, 1, 2_560).at(-1)).toBe("4x950");
    expect(sizes(1, 1, 2_048).at(-1)).toBe("9x911");
    // Two watches of 11 MiB are above half of a quarter.
    const sizing = new ChunkSizing();
    sizing.record(piece(1_000, 1, 1, 16 * 1024));
    expect(sizing.next(2_000, unbounded)).toEqual({ watches: 2, revisions: 512 });
    sizing.record(piece(2, 1, 1, 9 * 1024 ** 2));
    expect(sizing.next(2_000, unbounded)).toEqual({ watches: 1, revisions: 3 });
  });

  test("are read by as many watches as they need if the response of each is below that", () => {
    const sizing = new ChunkSizing();
    sizing.record(piece(1_000, 1, 1, 2_500));
    // 1.8 MiB each: only one of 950 revisions would be above 2 MiB.
    expect(sizing.next(3_805, unbounded)).toEqual({ watches: 5, revisions: 761 });
  });

  test("have as many revisions as there is room for events, of which a revision may have several", () => {
    const sizing = new ChunkSizing();
    sizing.record(piece(1_000, 1, 4, 1));
    expect(sizing.next(1_000_000, { events: 8_000, bytes: Infinity })).toEqual({
      watches: 3,
      revisions: 667,
    });
  });

  test("end at the oldest requested revision", () => {
    const sizing = new ChunkSizing();
    expect(sizing.next(30, unbounded)).toEqual({ watches: 1, revisions: 30 });
  });

  test("are no larger than the room that is left, estimated from the last chunk", () => {
    const sizing = new ChunkSizing();
    sizing.record(piece(10_000, 1, 1, 600));
    expect(sizing.next(1_000_000, { events: 1_900, bytes: Infinity })).toEqual({
      watches: 2,
      revisions: 950,
    });
    expect(sizing.next(1_000_000, { events: Infinity, bytes: 1_900 * 600 })).toEqual({
      watches: 2,
      revisions: 950,
    });
  });

  test("become much smaller after one that was too large, down to a single revision", () => {
    const sizing = new ChunkSizing();
    const asked: number[] = [];
    for (let size = sizing.next(1_000, unbounded); ; size = sizing.next(1_000, unbounded)) {
      asked.push(size.revisions);
      if (!sizing.tooLarge(size)) break;
    }
    expect(asked).toEqual([50, 3, 1]);
  });

  test("become smaller also if a single watch, or watches of a single revision, read too much", () => {
    const sizing = new ChunkSizing();
    expect(sizing.tooLarge({ watches: 1, revisions: 50 })).toBe(true);
    expect(sizing.tooLarge({ watches: 4, revisions: 1 })).toBe(true);
    expect(sizing.tooLarge({ watches: 1, revisions: 1 })).toBe(false);
  });
});
