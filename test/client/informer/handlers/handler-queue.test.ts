import { describe, expect, it } from "vitest";
import {
  HandlerQueue,
  type Notification,
  updateOf,
} from "../../../../src/client/informer/handlers/handler-queue.ts";
import type { TypedObject } from "../../../../src/client/values/typed-object.ts";

function object(version: number): TypedObject<string> {
  return { key: "a", value: "", createRevision: 1, modRevision: version, version, lease: 0n };
}

/** A change from one version to the next, with this many bytes. */
function update(version: number, bytes: number): Notification<string> {
  return updateOf(object(version), object(version + 1), bytes);
}

describe("The queue of a handler", () => {
  it("holds notifications one by one up to a bound in bytes, and coalesces them by key beyond it", () => {
    const queue = new HandlerQueue<string>(1_000, 100);
    for (let version = 1; version <= 6; version++) queue.push(update(version, 30));
    // Three one by one, and the rest coalesced to one.
    expect([queue.length, queue.coalescedCount]).toEqual([4, 2]);
    const versions = [];
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      versions.push([next.before?.version, next.after?.version]);
    }
    expect(versions).toEqual([
      [1, 2],
      [2, 3],
      [3, 4],
      [4, 7],
    ]);
  });

  it("may hold one notification of any size", () => {
    const queue = new HandlerQueue<string>(1_000, 100);
    queue.push(update(1, 1_000));
    expect([queue.length, queue.shift()?.after?.version]).toEqual([1, 2]);
  });

  it("frees its capacity when notifications are taken or dropped", () => {
    const queue = new HandlerQueue<string>(1_000, 100);
    for (let version = 1; version <= 10; version++) {
      queue.push(update(version, 60));
      queue.shift();
    }
    queue.push(update(1, 60));
    queue.clear();
    queue.push(update(1, 60));
    expect(queue.coalescedCount).toBe(0);
  });
});
