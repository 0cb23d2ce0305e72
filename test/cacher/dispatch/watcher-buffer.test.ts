import { describe, expect, test } from "vitest";
import { WatcherBuffer } from "../../../src/cacher/dispatch/watcher-buffer.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { event } from "../objects.ts";

function batch(revision: number): WatchBatch {
  return new WatchBatch(revision, [event("MODIFIED", "a", revision)]);
}

function bookmark(revision: number): WatchBatch {
  return new WatchBatch(revision, []);
}

function filled(...batches: readonly WatchBatch[]): WatcherBuffer {
  const buffer = new WatcherBuffer();
  for (const each of batches) buffer.put(each);
  return buffer;
}

function taken(buffer: WatcherBuffer): (number | undefined)[] {
  const revisions: (number | undefined)[] = [];
  for (let next = buffer.take(); next !== undefined; next = buffer.take()) {
    revisions.push(next.revision);
  }
  return revisions;
}

const { estimatedBytes } = batch(1);

describe("The buffer of a watcher", () => {
  test("returns its batches in their order, and counts what is left", () => {
    const buffer = filled(batch(1), batch(2), batch(3));
    expect([buffer.length, buffer.bytes]).toEqual([3, 3 * estimatedBytes]);
    expect(buffer.take()?.revision).toBe(1);
    expect([buffer.length, buffer.bytes]).toEqual([2, 2 * estimatedBytes]);
    expect(taken(buffer)).toEqual([2, 3]);
    expect([buffer.length, buffer.bytes]).toEqual([0, 0]);
    buffer.put(batch(4));
    expect(taken(buffer)).toEqual([4]);
  });

  test("is empty after it is cleared", () => {
    const buffer = filled(batch(1), batch(2));
    buffer.clear();
    expect([buffer.length, buffer.bytes, buffer.take()]).toEqual([0, 0, undefined]);
  });

  test("has room for any batch while it is empty, and then up to both bounds", () => {
    const narrow = { batches: 1, bytes: 1 };
    expect(filled().hasRoom(batch(1), narrow)).toBe(true);
    expect(filled(batch(1)).hasRoom(batch(2), { ...narrow, batches: 2 })).toBe(false);
    const exact = { batches: 2, bytes: 2 * estimatedBytes };
    expect(filled(batch(1)).hasRoom(batch(2), exact)).toBe(true);
    expect(filled(batch(1)).hasRoom(batch(2), { ...exact, batches: 1 })).toBe(false);
    expect(filled(batch(1)).hasRoom(batch(2), { ...exact, bytes: exact.bytes - 1 })).toBe(false);
    expect(filled(batch(1), batch(2)).hasRoom(bookmark(3), exact)).toBe(false);
  });

  test("is as old as the oldest event in it whose arrival is known", () => {
    expect(filled().arrivedAt).toBeUndefined();
    expect(filled(bookmark(1), bookmark(2)).arrivedAt).toBeUndefined();
    expect(filled(batch(1).arrived(5), batch(2).arrived(6)).arrivedAt).toBe(5);
    expect(filled(bookmark(1), bookmark(2), batch(3).arrived(7)).arrivedAt).toBe(7);
  });

  test.each<[string, WatchBatch[], boolean, number[]]>([
    ["nothing", [], false, []],
    ["events", [batch(1)], false, [1]],
    ["a bookmark", [bookmark(1)], true, [9]],
    ["a bookmark after events", [batch(1), batch(2), bookmark(3)], true, [1, 2, 9]],
    ["events after a bookmark", [bookmark(1), batch(2)], false, [1, 2]],
  ])("whose end is %s replaces a bookmark only", (_, batches, isReplaced, revisions) => {
    const buffer = filled(...batches);
    expect(buffer.replaceBookmark(bookmark(9))).toBe(isReplaced);
    expect(taken(buffer)).toEqual(revisions);
  });

  test("replaces the only bookmark that is left", () => {
    const buffer = filled(batch(1), bookmark(2));
    buffer.take();
    expect(buffer.replaceBookmark(bookmark(9))).toBe(true);
    expect(taken(buffer)).toEqual([9]);
  });
});
