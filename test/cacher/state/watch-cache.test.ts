import { describe, expect, it } from "vitest";
import type { EventNode } from "../../../src/cacher/state/event-node.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { type EventType, WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { memoryBytes, StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { cornerText, event, object, short } from "../objects.ts";

function open(objects: readonly StoredObject[] = [], revision = 1) {
  const clock = new FakeClock();
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  cache.replace(objects, revision);
  return { cache, clock };
}

function batch(revision: number | undefined, ...events: WatchEvent[]): WatchBatch {
  return new WatchBatch(revision, events);
}

/** The events in the window, as text, each with its previous object. */
function eventsOf(cache: WatchCache): string[] {
  const all: string[] = [];
  let node: EventNode | undefined = cache.eventWindow.floor.next;
  for (; node !== undefined; node = node.next) {
    if (node.eventWithPrevious !== undefined) all.push(short(node.eventWithPrevious));
  }
  return all;
}

function held(cache: WatchCache): StoredObject[] {
  return [...cache.state.range("")];
}

describe("A watch cache", () => {
  it("is empty at revision 0 before the first list", () => {
    const cache = new WatchCache(defaultEventWindowBounds, new FakeClock());
    expect([cache.revision, cache.lastChangeRevision, cache.objectBytes, cache.state.size]).toEqual(
      [0, 0, 0, 0],
    );
  });

  it("replaces its state, and begins a new event window", () => {
    const { cache } = open([object("gone", 2), object("a", 3)], 5);
    cache.apply(batch(6, event("ADDED", "b", 6)));
    const taken = [object("c", 8, "large"), object("d", 4)];
    cache.replace(taken, 9);
    expect(held(cache)).toEqual(taken);
    expect([cache.revision, cache.lastChangeRevision, cache.eventWindow.floor.revision]).toEqual([
      9, 9, 9,
    ]);
    expect(cache.eventWindow.length).toBe(0);
    expect(cache.objectBytes).toBe(taken.reduce((sum, each) => sum + memoryBytes(each), 0));
  });

  it("leaves earlier snapshots unchanged when the state is replaced", () => {
    const { cache } = open([object("a", 2)], 2);
    const { state } = cache;
    cache.replace([object("b", 3)], 3);
    expect([...state.range("")].map(({ key }) => key)).toEqual(["a"]);
  });

  it("gives every event the type of its change, and the previous object", () => {
    const { cache } = open([object("a", 2, "0")], 2);
    cache.apply(batch(3, event("MODIFIED", "a", 3, "1"), event("ADDED", "b", 3, "1")));
    cache.apply(batch(5, event("DELETED", "a", 4), event("ADDED", "a", 5, "2")));
    expect(eventsOf(cache)).toEqual([
      "MODIFIED a=1@3 (0@2)",
      "ADDED b=1@3",
      "DELETED a=1@4 (1@3)",
      "ADDED a=2@5",
    ]);
  });

  it.each([
    ["an object that it did not hold", "MODIFIED", "new", "ADDED new=x@3"],
    ["an object that it held", "ADDED", "a", "MODIFIED a=x@3 (0@2)"],
  ] as const)("judges by itself whether %s was added", (_what, type, key, expected) => {
    const { cache } = open([object("a", 2, "0")], 2);
    cache.apply(batch(3, event(type, key, 3, "x")));
    expect(eventsOf(cache)).toEqual([expected]);
  });

  it("keeps the received event itself if it is complete", () => {
    const { cache } = open();
    const added = event("ADDED", "a", 2);
    cache.apply(batch(2, added));
    expect(cache.eventWindow.newest.event).toBe(added);
  });

  it("drops a received previous object, since it holds that object already", () => {
    const { cache } = open([object("a", 2, "0")], 2);
    cache.apply(batch(3, new WatchEvent("MODIFIED", object("a", 3, "1"), object("a", 2, "other"))));
    expect(eventsOf(cache)).toEqual(["MODIFIED a=1@3 (0@2)"]);
    expect(cache.eventWindow.newest.event?.previous).toBeUndefined();
  });

  it("gives a deleted object its last content, regardless of the event", () => {
    const { cache } = open([new StoredObject("a", Buffer.from("last"), 3, 7, 4, 99n)], 7);
    cache.apply(batch(9, new WatchEvent("DELETED", object("a", 9), undefined)));
    expect(cache.eventWindow.newest.event?.object).toEqual(
      new StoredObject("a", Buffer.from("last"), 3, 9, 4, 99n),
    );
    expect(cache.state.size).toBe(0);
    expect(cache.objectBytes).toBe(0);
  });

  it("counts the deletion of an unknown key, delivers no event, and continues", () => {
    const { cache } = open([], 2);
    cache.apply(batch(3, event("DELETED", "a", 3), event("ADDED", "b", 3)));
    expect(cache.unknownDeletes).toBe(1);
    expect(eventsOf(cache)).toEqual(["ADDED b=@3"]);
    expect(cache.revision).toBe(3);
  });

  it("advances with a bookmark, without a change", () => {
    const { cache } = open([], 2);
    cache.apply(batch(3, event("ADDED", "a", 3)));
    cache.apply(batch(8));
    expect([cache.revision, cache.lastChangeRevision]).toEqual([8, 3]);
  });

  it.each([
    ["a bookmark below its revision", batch(2)],
    ["a bookmark at its own revision", batch(5)],
    ["an empty batch", batch(undefined)],
  ])("does not go back for %s", (_what, nothing) => {
    const { cache } = open([], 5);
    cache.apply(nothing);
    expect(cache.revision).toBe(5);
  });

  it.each([
    [
      "its own revision",
      batch(6, event("ADDED", "b", 5)),
      'The storage repeated revision 5 of "b": the cache is at 5 already.',
    ],
    [
      "a revision below its own",
      batch(6, event("ADDED", "b", 4)),
      'The storage repeated revision 4 of "b": the cache is at 5 already.',
    ],
    [
      "revisions out of order",
      batch(8, event("ADDED", "b", 7), event("ADDED", "c", 8), event("ADDED", "d", 7)),
      'The storage repeated revision 7 of "d": the cache is at 8 already.',
    ],
    [
      "events above the resume point of their batch",
      batch(6, event("ADDED", "b", 6), event("ADDED", "c", 7)),
      "The storage delivered revision 7 in a batch whose resume point is 6.",
    ],
    [
      "events without a resume point",
      batch(undefined, event("ADDED", "b", 6)),
      "The storage delivered revision 6 in a batch without a resume point.",
    ],
  ])("refuses %s, and applies nothing of the batch", (_what, wrong, message) => {
    const { cache } = open([object("a", 2)], 5);
    expect(() => cache.apply(wrong)).toThrow(message);
    expect(cache.revision).toBe(5);
    expect(cache.eventWindow.length).toBe(0);
    expect(held(cache)).toEqual([object("a", 2)]);
  });

  it("dates events by the clock on arrival", () => {
    const { cache, clock } = open();
    clock.advance(40);
    cache.apply(batch(2, event("ADDED", "a", 2)));
    clock.advance(2);
    expect(cache.eventWindow.oldestAgeMs).toBe(2);
  });
});

describe("Any sequence of writes", () => {
  const write = fc.record({
    key: cornerText(1, 2),
    value: fc.option(fc.string({ maxLength: 20 })),
  });
  const transactions = fc.array(
    fc.record({
      writes: fc.uniqueArray(write, { selector: ({ key }) => key, maxLength: 4 }),
      /** How far the resume point exceeds the transaction's revision, before the next one. */
      beyond: fc.nat(2),
    }),
    { maxLength: 40 },
  );

  it("leaves the same objects in the cache as in a map, and its changes in the event window", () => {
    fc.assert(
      fc.property(transactions, (all) => {
        const { cache } = open([], 10);
        const model = new Map<string, StoredObject>();
        const happened: string[] = [];
        let revision = 10;
        for (const { writes, beyond } of all) {
          revision++;
          const events: WatchEvent[] = [];
          for (const { key, value } of writes) {
            const before = model.get(key);
            if (value === null && before === undefined) continue;
            const type: EventType =
              value === null ? "DELETED" : before === undefined ? "ADDED" : "MODIFIED";
            const now = object(key, revision, value ?? "", (before?.version ?? 0) + 1);
            // Without the previous object, as storages deliver it to readers that hold the state themselves.
            events.push(new WatchEvent(type, now, undefined));
            if (value === null) model.delete(key);
            else model.set(key, now);
            const current = type === "DELETED" ? before?.deletedAt(revision) : now;
            happened.push(short(new WatchEvent(type, current ?? now, before)));
          }
          const changed = events.length > 0 ? revision : cache.lastChangeRevision;
          revision += beyond;
          cache.apply(new WatchBatch(revision, events));
          expect(cache.revision).toBe(revision);
          expect(cache.lastChangeRevision).toBe(changed);
        }
        const objects = [...model.values()].sort((a, b) =>
          Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)),
        );
        expect(held(cache)).toEqual(objects);
        expect(cache.objectBytes).toBe(objects.reduce((sum, each) => sum + memoryBytes(each), 0));
        expect(eventsOf(cache)).toEqual(happened);
        expect(cache.unknownDeletes).toBe(0);
      }),
      { numRuns: runs(200) },
    );
  });
});
