import { describe, expect, test } from "vitest";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { memoryBytes, type StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import { silent } from "../cached-store.ts";
import { event, object } from "../objects.ts";

const clock = new FakeClock();
const codec = new JsonCodec({ fields: ["node", "zone"] });
const reader = new AttributeReader(codec, clock, silent);
const attributes = new ObjectAttributes(reader, ["node", "zone"]);

function json(key: string, fields: object, revision = 2): StoredObject {
  return object(key, revision, JSON.stringify(fields));
}

function keysIn(objects: Iterable<StoredObject> | undefined): string[] | undefined {
  return objects && [...objects].map(({ key }) => key);
}

describe("A watch cache with indexed fields", () => {
  const open = () => {
    const cache = new WatchCache(defaultEventWindowBounds, clock, attributes);
    cache.replace([json("a", { node: "n1" }), json("b", { node: "n2", zone: "z" })], 2);
    const keys = (fields: string) =>
      keysIn(cache.stateFor(attributes.select("", fields)).range(""));
    return { cache, keys };
  };

  test("has the part of its state with the value that a selection requires, and the whole for others", () => {
    const { cache, keys } = open();
    expect([keys("node=n1"), keys("zone=z"), keys("node=none")]).toEqual([["a"], ["b"], []]);
    expect(cache.stateFor(undefined)).toBe(cache.state);
    // Objects without a value are not in the index.
    expect(keys("node=")).toEqual(["a", "b"]);
    expect(keys("node!=n1")).toEqual(["a", "b"]);
    expect(keys("node=,zone=z")).toEqual(["b"]);
  });

  test("follows its events, and begins again with another state", () => {
    const { cache, keys } = open();
    const changed = new WatchEvent("MODIFIED", json("a", { node: "n2" }, 3), undefined);
    cache.apply(new WatchBatch(4, [changed, event("DELETED", "b", 4)]));
    expect([keys("node=n1"), keys("node=n2"), keys("zone=z")]).toEqual([[], ["a"], []]);
    cache.replace([json("c", { node: "n1" })], 9);
    expect([keys("node=n1"), keys("node=n2")]).toEqual([["c"], []]);
  });

  test("counts the memory of the attributes that it has read", () => {
    const { cache } = open();
    const created = event("ADDED", "c", 3, JSON.stringify({ node: "n".repeat(1_000) }));
    const received = created.estimatedBytes;
    const before = cache.objectBytes;
    cache.apply(new WatchBatch(3, [created]));
    const held = cache.state.get("c") as StoredObject;
    expect(memoryBytes(held)).toBeGreaterThan(received);
    expect(cache.objectBytes - before).toBe(memoryBytes(held));
    expect(cache.eventWindow.newest.event?.estimatedBytes).toBe(memoryBytes(held));
  });
});

test("A watch cache knows its history, and counts the states that it was filled with", () => {
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  expect([cache.historyId, cache.epoch]).toEqual(["", 0]);
  cache.replace([], 2, "first");
  expect([cache.historyId, cache.epoch]).toEqual(["first", 1]);
  cache.identify("second");
  cache.replace([], 3);
  expect([cache.historyId, cache.epoch]).toEqual(["", 2]);
  cache.identify("third");
  expect(cache.historyId).toBe("third");
});

test("A watch cache whose new state is known to follow on the old one links both event windows", () => {
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  cache.replace([object("a", 2)], 2);
  const { newest } = cache.eventWindow;
  const between = [{ event: event("ADDED", "b", 5), previous: undefined }];
  cache.replace([object("a", 2), object("b", 5)], 9, "", between);
  const { floor } = cache.eventWindow;
  expect([newest.next?.event, newest.next?.next]).toEqual([between[0]?.event, floor]);
  expect([floor.event, floor.revision, cache.eventWindow.length]).toEqual([undefined, 9, 0]);
  // Positions continue: a reader of the old window is behind the new one.
  expect(floor.sequence - newest.sequence).toBe(2);
  expect(cache.eventWindow.covers(newest)).toBe(false);
  cache.replace([], 10);
  expect(cache.eventWindow.floor.sequence).toBe(0);
  expect(floor.next).toBeUndefined();
});
