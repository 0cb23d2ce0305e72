import { describe, expect, test } from "vitest";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import type { EventNode } from "../../../src/cacher/state/event-node.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { EventLinker } from "../../../src/cacher/state/event-window-backfill.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { type EventType, WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { memoryBytes, type StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import { silent } from "../cached-store.ts";
import { finish } from "../finish.ts";
import { event, object, short } from "../objects.ts";

/** A cache with these objects at revision 10, of which later events may follow. */
function cacheOf(...objects: readonly StoredObject[]): WatchCache {
  const clock = new FakeClock();
  const reader = new AttributeReader(new JsonCodec({ fields: ["n"] }), clock, silent);
  const cache = new WatchCache(defaultEventWindowBounds, clock, new ObjectAttributes(reader));
  cache.replace(objects, 10);
  return cache;
}

/** An event with the object before. */
function past(type: EventType, object: StoredObject, previous?: StoredObject): WatchEvent {
  return new WatchEvent(type, object, previous);
}

/** Links events after 1 to the cache, and returns what is before its events then; undefined: they can't have led there. */
function linked(cache: WatchCache, ...events: readonly WatchEvent[]): string[] | undefined {
  const { floor } = cache.eventWindow;
  const linker = finish(EventLinker.before(floor, cache));
  const older = finish(linker.link({ after: 1, upTo: 10, events, bytes: 0 }, floor));
  if (older === undefined) return undefined;
  const all: string[] = [];
  for (let node: EventNode | undefined = older.join(); node !== undefined; node = node.next) {
    const { eventWithPrevious } = node;
    all.push(eventWithPrevious === undefined ? `after ${node.revision}` : short(eventWithPrevious));
  }
  return all;
}

describe("Past events are linked", () => {
  test("to the state that they led to, each with the object before", () => {
    const [a3, a5, b4] = [object("a", 3, "1"), object("a", 5, "2"), object("b", 4, "3")];
    const cache = cacheOf(a5);
    const all = linked(
      cache,
      past("ADDED", a3),
      past("ADDED", b4),
      past("MODIFIED", a5, a3),
      past("DELETED", object("b", 6), b4),
    );
    expect(all).toEqual([
      ...["after 1", "ADDED a=1@3", "ADDED b=3@4", "MODIFIED a=2@5 (1@3)", "DELETED b=3@6 (3@4)"],
    ]);
    // The object that is known is kept.
    expect(cache.eventWindow.floor.event?.type).toBe("DELETED");
  });

  test("to the oldest event of each key in the window, if there is one", () => {
    const [a3, a5] = [object("a", 3), object("a", 5)];
    const cache = cacheOf(a5, object("b", 9));
    cache.apply(
      new WatchBatch(13, [
        event("MODIFIED", "a", 11),
        event("DELETED", "a", 12),
        event("DELETED", "b", 13),
      ]),
    );
    expect(linked(cache, past("MODIFIED", a5, a3))).toEqual([
      ...["after 1", "MODIFIED a=@5 (@3)", "MODIFIED a=@11 (@5)", "DELETED a=@12 (@11)"],
      "DELETED b=@13 (@9)",
    ]);
    expect(linked(cache, past("MODIFIED", object("a", 11), a5))).toBeUndefined();
  });

  test("if there is no event: then the window begins earlier", () => {
    const cache = cacheOf(object("a", 5));
    expect(linked(cache)).toEqual(["after 1"]);
    expect(cache.eventWindow.floor.revision).toBe(1);
  });

  test("with the attributes of their objects, which count for their memory", () => {
    const [a3, a5] = [object("a", 3, '{"n":"x"}'), object("a", 5, '{"n":"y"}')];
    const unread = memoryBytes(a3);
    const cache = cacheOf(a5);
    const { floor } = cache.eventWindow;
    const linker = finish(EventLinker.before(floor, cache));
    const events = [past("MODIFIED", object("a", 5, '{"n":"y"}'), a3)];
    const older = finish(linker.link({ after: 1, upTo: 10, events, bytes: 0 }, floor));
    older?.join();
    expect(floor.event?.object).toBe(a5);
    expect(floor.previous?.attributes).toBeDefined();
    expect(memoryBytes(floor.previous as StoredObject)).toBeGreaterThan(unread);
  });

  test("in steps of 64", () => {
    const states = Array.from({ length: 150 }, (_, i) => object("a", i + 2));
    const cache = cacheOf(states.at(-1) as StoredObject);
    for (let revision = 200; revision < 350; revision++) {
      cache.apply(new WatchBatch(revision, [event("MODIFIED", "a", revision)]));
    }
    const stepsOf = (work: Iterator<unknown>): number => {
      let steps = 0;
      while (work.next().done !== true) steps++;
      return steps;
    };
    const { floor } = cache.eventWindow;
    expect(stepsOf(EventLinker.before(floor, cache))).toBe(3);
    const linker = finish(EventLinker.before(floor, cache));
    const events = states.map((state, i) =>
      past(i === 0 ? "ADDED" : "MODIFIED", state, states[i - 1]),
    );
    expect(stepsOf(linker.link({ after: 1, upTo: 199, events, bytes: 0 }, floor))).toBe(3);
  });
});

describe("Past events can't have led to the state", () => {
  test.each<[string, WatchEvent]>([
    ["if an object is of another revision", past("MODIFIED", object("a", 4), object("a", 3))],
    ["if it is not there", past("ADDED", object("b", 4))],
    ["if a deleted one is there", past("DELETED", object("a", 6), object("a", 5))],
    ["if a deleted one was not there", past("DELETED", object("b", 6))],
  ])("%s", (_, one) => {
    expect(linked(cacheOf(object("a", 5)), one)).toBeUndefined();
  });
});
