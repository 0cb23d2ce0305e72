import { describe, expect, test } from "vitest";
import { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { estimatedBytes, StoredObject } from "../../src/model/object.ts";

const object = new StoredObject("key", new Uint8Array(100), 3, 7, 2, 9n);

describe("StoredObject", () => {
  test("as deleted has its last content, and the revision of the deletion", () => {
    const deleted = object.deletedAt(11);
    expect(deleted).toEqual(new StoredObject("key", object.value, 3, 11, 2, 9n));
    expect(deleted.value).toBe(object.value);
    expect(object.modRevision).toBe(7);
  });

  test("estimates its size as key, value and a constant", () => {
    const bare = estimatedBytes(new StoredObject("", new Uint8Array(), 1, 1, 1, 0n));
    expect(bare).toBeGreaterThan(0);
    expect(estimatedBytes(object)).toBe(bare + "key".length + 100);
  });
});

describe("WatchEvent", () => {
  test("has the revision of its object, and estimates its size as that of its objects", () => {
    const created = new WatchEvent("ADDED", object, undefined);
    expect(created.revision).toBe(7);
    expect(created.estimatedBytes).toBe(estimatedBytes(object));
    const deleted = new WatchEvent("DELETED", object.deletedAt(11), object);
    expect(deleted.revision).toBe(11);
    expect(deleted.estimatedBytes).toBe(2 * estimatedBytes(object));
  });
});

describe("WatchBatch", () => {
  test("estimates its size as that of its events, 0 for a bookmark", () => {
    const event = new WatchEvent("MODIFIED", object, object);
    expect(new WatchBatch(7, [event, event]).estimatedBytes).toBe(2 * event.estimatedBytes);
    expect(new WatchBatch(7, []).estimatedBytes).toBe(0);
  });

  test("does not complete an initial state by default", () => {
    expect(new WatchBatch(7, []).initialEventsEnd).toBe(false);
    expect(new WatchBatch(7, [], true).initialEventsEnd).toBe(true);
  });
});
