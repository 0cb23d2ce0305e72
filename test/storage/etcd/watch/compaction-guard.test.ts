import { describe, expect, test } from "vitest";
import { WatchBatch } from "../../../../src/model/event.ts";
import { CompactionGuard } from "../../../../src/storage/etcd/compaction-guard.ts";

/** A guard whose checks the test controls, and its callbacks' calls. */
function open() {
  const asked: { revision: number; response: PromiseWithResolvers<boolean> }[] = [];
  const events: string[] = [];
  const queue = new CompactionGuard({
    isAvailable: (revision) => {
      const response = Promise.withResolvers<boolean>();
      asked.push({ revision, response });
      return response.promise;
    },
    onReadable: () => events.push("readable"),
    onLost: (after) => events.push(`lost after ${after}`),
    onError: (error) => events.push(String(error)),
  });
  const read = (): (number | undefined)[] => {
    const revisions: (number | undefined)[] = [];
    for (let batch = queue.shift(); batch !== undefined; batch = queue.shift()) {
      revisions.push(batch.revision);
    }
    return revisions;
  };
  const respond = async (index: number, isAvailable: boolean): Promise<void> => {
    asked[index]?.response.resolve(isAvailable);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { queue, asked, events, read, respond };
}

function batch(revision: number): WatchBatch {
  return new WatchBatch(revision, []);
}

describe("A batch of a watch", () => {
  test("can be read at once if it is not historical, or follows nothing", () => {
    const { queue, asked, events, read } = open();
    queue.push(batch(5), 4, false);
    queue.push(batch(6), 0, true);
    expect(read()).toEqual([5, 6]);
    expect(asked).toEqual([]);
    expect(events).toEqual(["readable", "readable"]);
  });

  test("is held until it is certain that the revision before it is not compacted", async () => {
    const { queue, asked, events, read, respond } = open();
    queue.push(batch(1_004), 4, true);
    expect([queue.isEmpty, read()]).toEqual([true, []]);
    expect(asked.map(({ revision }) => revision)).toEqual([4]);
    await respond(0, true);
    expect(events).toEqual(["readable"]);
    expect(read()).toEqual([1_004]);
  });

  test("is confirmed by one check for all batches that came before it, and another for the rest", async () => {
    const { queue, asked, read, respond } = open();
    queue.push(batch(1_004), 4, true);
    queue.push(batch(2_004), 1_004, true);
    queue.push(batch(2_005), 2_004, false);
    await respond(0, true);
    // Batches that came during the check may be newer than its response.
    expect(read()).toEqual([1_004]);
    expect(asked.map(({ revision }) => revision)).toEqual([4, 1_004]);
    await respond(1, true);
    expect(read()).toEqual([2_004, 2_005]);
    queue.push(batch(2_006), 2_005, false);
    expect(read()).toEqual([2_006]);
    expect(asked).toHaveLength(2);
  });

  test("is lost, with all later ones, if the revision before it is compacted", async () => {
    const { queue, events, read, respond } = open();
    queue.push(batch(1_004), 4, true);
    await respond(0, true);
    queue.push(batch(2_004), 1_004, true);
    await respond(1, false);
    expect(events).toEqual(["readable", "lost after 1004"]);
    expect(read()).toEqual([1_004]);
  });

  test("is dropped when the watch ends, unless it is confirmed", async () => {
    const { queue, events, read, respond } = open();
    queue.push(batch(5), 4, false);
    queue.push(batch(6), 5, true);
    queue.close();
    await respond(0, false);
    expect(events).toEqual(["readable"]);
    expect(read()).toEqual([5]);
  });

  test("ends the watch with the check's error, unless the watch has ended before", async () => {
    for (const closed of [false, true]) {
      const { queue, asked, events } = open();
      queue.push(batch(5), 4, true);
      if (closed) queue.clear();
      asked[0]?.response.reject(new Error("gone"));
      await new Promise((resolve) => setImmediate(resolve));
      expect(events).toEqual(closed ? [] : ["Error: gone"]);
    }
  });

  test("is dropped with all others when the watch is discarded", async () => {
    const { queue, events, read, respond } = open();
    queue.push(batch(5), 4, false);
    queue.push(batch(6), 5, true);
    queue.clear();
    expect(queue.isEmpty).toBe(true);
    await respond(0, true);
    expect(events).toEqual(["readable"]);
    expect(read()).toEqual([]);
  });

  test("pauses the source while too many are unread, until half of them are read", () => {
    const { queue } = open();
    expect([queue.isFull, queue.isHalfEmpty]).toEqual([false, true]);
    let pushed = 0;
    while (!queue.isFull) queue.push(batch(++pushed), 0, false);
    expect(queue.isHalfEmpty).toBe(false);
    queue.shift();
    expect([queue.isFull, queue.isHalfEmpty]).toEqual([false, false]);
    let read = 1;
    for (; !queue.isHalfEmpty; read++) queue.shift();
    expect(Math.abs(2 * read - pushed)).toBeLessThanOrEqual(2);
    expect(queue.isEmpty).toBe(false);
  });
});
