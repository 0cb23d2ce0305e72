import { setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { revisionTooOld, upstreamUnavailable } from "../../../src/base/errors.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { RecentChanges } from "../../../src/reflector/recent-changes.ts";
import type { WrittenAfterRequest } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { batch, object } from "../reflected.ts";
import { ScriptedStorage } from "../scripted-storage.ts";

const { signal } = new AbortController();

/** A storage that serves reads from these objects at any revision. */
class Counting extends ScriptedStorage {
  readonly asked: WrittenAfterRequest[] = [];

  constructor(objects: readonly StoredObject[]) {
    super();
    this.objects = objects;
  }

  /** More than any change has, unless a test says otherwise. */
  override async currentRevision() {
    return 1_000;
  }

  async writtenAfter(request: WrittenAfterRequest) {
    this.asked.push(request);
    const written = this.objects.filter(({ modRevision }) => modRevision > request.after);
    return { written: written.slice(0, request.limit), total: this.objects.length };
  }
}

function listed(objects: readonly StoredObject[], revision: number): RecentChanges {
  const changes = new RecentChanges({ prefix: "" });
  changes.reset(objects, revision);
  return changes;
}

const numbered = (count: number): StoredObject[] =>
  Array.from({ length: count }, (_, i) => object(`key-${String(i).padStart(4, "0")}`, i + 1));

describe("The recent changes of a history", () => {
  it("are checked at the delivered revision, also if it had no events", async () => {
    const changes = listed([object("a", 3)], 5);
    changes.advance(batch(9));
    const storage = new Counting([object("a", 3)]);
    await changes.check(storage, signal);
    expect(storage.asked).toMatchObject([
      { revision: 9, after: 0, limit: 2, scope: { prefix: "" } },
    ]);
  });

  it.each([
    ["all objects where there are few", 10, 0, 11],
    ["the newest 64 where there are more", 1_000, 936, 65],
  ])("are %s", async (_what, count, after, limit) => {
    const objects = numbered(count);
    const storage = new Counting(objects);
    await listed(objects, 2_000).check(storage, signal);
    expect(storage.asked).toMatchObject([{ after, limit }]);
  });

  it.each([1_041, 3_000])(
    "are the newest of %d objects that are listed in any order",
    async (count) => {
      const objects = numbered(count);
      // 7 is prime to both counts, so that each object comes once.
      const mixed = objects.map((_, i) => objects[(i * 7) % count] ?? object("none", 0));
      const storage = new Counting(mixed);
      await listed(mixed, count).check(storage, signal);
      expect(storage.asked).toMatchObject([{ after: count - 64, limit: 65 }]);
    },
  );

  it("are those of complete revisions", async () => {
    // All in one transaction, and more than are recorded.
    const objects = numbered(100).map(({ key }) => object(key, 7));
    const storage = new Counting(objects);
    await listed(objects, 7).check(storage, signal);
    expect(storage.asked).toMatchObject([{ after: 7, limit: 1 }]);
  });

  it("are only those of whole batches, as no state is between two parts of one", () => {
    const changes = listed([object("a", 3)], 5);
    const part = new WatchBatch(undefined, batch(6, ["MODIFIED", "a", 6]).events);
    expect(() => changes.advance(part)).toThrow("split a batch");
  });

  it("follow delivered events: the last change of each object counts", async () => {
    const changes = listed([object("a", 1), object("b", 2)], 2);
    changes.advance(batch(3, ["ADDED", "c", 3]));
    changes.advance(batch(5, ["MODIFIED", "a", 4], ["DELETED", "c", 5]));
    changes.advance(batch(6, ["ADDED", "d", 6]));
    const now = [object("a", 4), object("b", 2), object("d", 6)];
    await expect(changes.check(new Counting(now), signal)).resolves.toBeUndefined();
  });

  it("drop the oldest changes above their maximum", async () => {
    const changes = listed([object("a", 1)], 1);
    for (let i = 2; i <= 200; i++) changes.advance(batch(i, ["MODIFIED", "a", i]));
    const storage = new Counting([object("a", 200)]);
    await changes.check(storage, signal);
    expect(storage.asked).toMatchObject([{ after: 136, limit: 2 }]);
  });

  it("start again with another list", async () => {
    const changes = listed(numbered(100), 100);
    changes.reset([object("a", 3)], 4);
    const storage = new Counting([object("a", 3)]);
    await changes.check(storage, signal);
    expect(storage.asked).toMatchObject([{ revision: 4, after: 0 }]);
  });

  it.each([
    ["has an object more", [object("a", 1), object("b", 2), object("c", 3)]],
    ["has an object less", [object("b", 2)]],
    ["has another object in the place of one", [object("b", 2), object("c", 1)]],
    ["has written an object at another revision", [object("a", 1), object("b", 3)]],
    ["has nothing", []],
  ])("detect a store that %s", async (_what, objects) => {
    const changes = listed([object("a", 1), object("b", 2)], 5);
    await expect(changes.check(new Counting(objects), signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      message: expect.stringContaining("revision 5"),
      metadata: { history_id: "" },
    });
  });

  it("name the newest object of the other store, if it has one", async () => {
    const check = async (objects: readonly StoredObject[]): Promise<unknown> =>
      listed([object("a", 1)], 5)
        .check(new Counting(objects), signal)
        .catch(({ message }: Error) => message);
    expect(await check([object("b", 4)])).toMatch('1 objects, among them "b" of 4, is not');
    expect(await check([])).toMatch("0 objects, is not");
  });

  it.each([
    ["that is gone without a trace among the newest", (all: StoredObject[]) => all.slice(1)],
    ["in the place of a new one", (all: StoredObject[]) => [object("x", 5), ...all.slice(0, -1)]],
    ["that was written", (all: StoredObject[]) => [object("key-0000", 1_500), ...all.slice(1)]],
  ])("detect another store by an old object %s", async (_what, change) => {
    const objects = numbered(1_000);
    const changes = listed(objects, 2_000);
    const other = new Counting(change(objects));
    await expect(changes.check(other, signal)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  it("are not checked if the storage has no writtenAfter", async () => {
    await expect(listed([], 1).check(new ScriptedStorage(), signal)).resolves.toBeUndefined();
  });
});

/** A storage whose watch of the past delivers these events, up to the revision that it is asked for. */
function withEvents(
  objects: readonly StoredObject[],
  ...events: Parameters<typeof batch> extends [number, ...infer Rest] ? Rest : never
): Counting {
  const storage = new Counting(objects);
  storage.onWatch = (stream, { afterRevision = 0, upTo = 0 }) => {
    const past = events.filter(([, , at]) => at > (afterRevision ?? 0) && at <= upTo);
    stream.push(batch(upTo, ...past));
  };
  return storage;
}

describe("Recent changes, few revisions after the last of them", () => {
  /** a and b are known, of which b was the last change, up to revision 9. */
  function known(...keys: readonly string[]) {
    const changes = new RecentChanges(
      { prefix: "" },
      { clock: new FakeClock(), has: (key) => keys.includes(key) },
    );
    changes.reset([object("a", 3), object("b", 5)], 5);
    changes.advance(batch(9));
    return changes;
  }

  it("are proven by the store's events since, without a comparison", async () => {
    const storage = withEvents([], ["MODIFIED", "a", 3], ["MODIFIED", "b", 5]);
    await known("a", "b").check(storage, signal);
    expect(storage.asked).toEqual([]);
    expect(storage.calls).toEqual(['watch {"prefix":""} after 1']);
  });

  it("may have been followed by objects that came and went before the list", async () => {
    const events = [
      ["MODIFIED", "a", 3],
      ["MODIFIED", "b", 5],
      ["ADDED", "c", 6],
      ["DELETED", "c", 7],
    ] as const;
    const storage = withEvents([], ...events);
    await known("a", "b").check(storage, signal);
    expect(storage.asked).toEqual([]);
  });

  it("are proven after a deletion", async () => {
    const changes = known("a");
    changes.advance(batch(11, ["DELETED", "b", 10]));
    const storage = withEvents([], ["ADDED", "a", 3], ["ADDED", "b", 5], ["DELETED", "b", 10]);
    await changes.check(storage, signal);
    expect(storage.asked).toEqual([]);
  });

  it.each([
    [
      "another object",
      [
        ["ADDED", "a", 3],
        ["MODIFIED", "b", 5],
        ["ADDED", "c", 6],
      ],
    ],
    [
      "another revision of one",
      [
        ["ADDED", "a", 3],
        ["MODIFIED", "b", 5],
        ["MODIFIED", "b", 6],
      ],
    ],
    [
      "the end of one",
      [
        ["ADDED", "a", 3],
        ["MODIFIED", "b", 5],
        ["DELETED", "a", 6],
      ],
    ],
    ["no such change", [["ADDED", "a", 3]]],
    ["no change before it", [["MODIFIED", "b", 5]]],
  ] as const)("are compared with a store that has %s", async (_what, events) => {
    const storage = withEvents([object("a", 3)], ...events);
    await expect(known("a", "b").check(storage, signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    expect(storage.asked).toHaveLength(1);
  });

  it("are compared where the deletion that was the last of them is missing", async () => {
    const changes = known("a");
    changes.advance(batch(11, ["DELETED", "b", 10]));
    const events = [
      ["ADDED", "a", 3],
      ["ADDED", "b", 5],
    ] as const;
    const storage = withEvents([object("a", 3), object("b", 5)], ...events);
    await expect(changes.check(storage, signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });

  it("are compared if they were listed later than the last of them, as deletions are not listed", async () => {
    const changes = known("a", "b");
    changes.reset([object("a", 3), object("b", 5)], 6);
    const storage = withEvents([object("b", 5)], ["ADDED", "a", 3], ["ADDED", "b", 5]);
    await expect(changes.check(storage, signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });

  it("are compared if they are many revisions ago", async () => {
    const storage = new Counting([object("a", 3), object("b", 5)]);
    const changes = known("a", "b");
    changes.advance(batch(1_006));
    await changes.check(storage, signal);
    expect(storage.calls).toEqual([]);
    expect(storage.asked).toHaveLength(1);
  });

  it("are compared if the store has compacted what is before them", async () => {
    const storage = new Counting([object("a", 3), object("b", 5)]);
    storage.onWatch = (stream) => stream.end(revisionTooOld(4, 6));
    await known("a", "b").check(storage, signal);
    expect(storage.calls).toEqual(['watch {"prefix":""} after 1']);
    expect(storage.asked).toHaveLength(1);
  });

  it("are compared, and the rest is not read, if the events take more than 4 MiB", async () => {
    const storage = new Counting([object("a", 3), object("b", 5)]);
    let pushed = 0;
    storage.onWatch = async (stream, { withPrevious }) => {
      expect(withPrevious).toBe(false);
      for (; pushed < 100; pushed++) {
        await setImmediate();
        if (stream.ended === null) return;
        const large = new StoredObject("c", Buffer.alloc(1024 ** 2), 6 + pushed, 6, pushed, 0n);
        stream.push(new WatchBatch(6 + pushed, [new WatchEvent("MODIFIED", large, undefined)]));
      }
    };
    const changes = known("a", "b");
    changes.advance(batch(500));
    await changes.check(storage, signal);
    expect(pushed).toBe(4);
    expect(storage.asked).toHaveLength(1);
  });

  it("are compared if the store has not reached their revision", async () => {
    const storage = new Counting([object("a", 3), object("b", 5)]);
    storage.currentRevision = async () => 4;
    await known("a", "b").check(storage, signal);
    expect(storage.calls).toEqual([]);
    expect(storage.asked).toHaveLength(1);
  });

  it("are compared if the store does not deliver them", async () => {
    const storage = new Counting([object("a", 3), object("b", 5)]);
    storage.onWatch = (stream) => stream.end(upstreamUnavailable("The watch was closed."));
    await known("a", "b").check(storage, signal);
    expect(storage.asked).toHaveLength(1);
  });

  it("are proven although the state changes before the store has answered", async () => {
    const storage = withEvents([], ["ADDED", "a", 3], ["ADDED", "b", 5], ["MODIFIED", "a", 10]);
    const changes = known("a", "b");
    const checked = changes.check(storage, signal);
    changes.advance(batch(10, ["MODIFIED", "a", 10]));
    await checked;
    expect(storage.asked).toEqual([]);
    expect(storage.calls).toEqual(['watch {"prefix":""} after 1']);
  });

  /** What others did that came and went before the list, as far as it is known. */
  const othersWent = [
    ["ADDED", "a", 3],
    ["ADDED", "b", 5],
    ["DELETED", "c", 8],
  ] as const;

  it("are proven although others came and went, and come again before the store has answered", async () => {
    const storage = new Counting([]);
    const changes = known("a", "b", "c");
    const checked = changes.check(storage, signal);
    await setImmediate();
    changes.advance(batch(12, ["ADDED", "c", 11], ["MODIFIED", "c", 12]));
    storage.stream.push(batch(9, ...othersWent));
    await checked;
    expect(storage.asked).toEqual([]);
  });

  it.each(["MODIFIED", "DELETED"] as const)(
    "are compared if the store has deleted one that was there, and is %s before the store has answered",
    async (type) => {
      const storage = new Counting([object("a", 3), object("b", 5)]);
      const changes = new RecentChanges(
        { prefix: "" },
        { clock: new FakeClock(), has: () => type === "MODIFIED" },
      );
      changes.restore({
        ...{ objects: [object("a", 3), object("b", 5), object("c", 1)], revision: 9 },
        ...{ events: batch(5, ["ADDED", "b", 5]).events, eventsAfter: 4 },
      });
      const checked = changes.check(storage, signal);
      await setImmediate();
      changes.advance(batch(12, [type, "c", 12]));
      storage.stream.push(batch(9, ["ADDED", "a", 3], ["ADDED", "b", 5], ["DELETED", "c", 4]));
      await expect(checked).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
      expect(storage.asked).toMatchObject([{ revision: 9 }]);
    },
  );

  it("are proven again if more changes than are recorded come before the store has answered", async () => {
    const storage = new Counting([]);
    const changes = known("a", "b");
    const checked = changes.check(storage, signal);
    await setImmediate();
    for (let at = 10; at < 80; at++) changes.advance(batch(at, ["MODIFIED", "a", at]));
    storage.onWatch = (stream, { afterRevision = 0 }) => {
      expect(afterRevision).toBe(15);
      for (let at = 16; at < 80; at++) stream.push(batch(at, ["MODIFIED", "a", at]));
    };
    storage.stream.push(batch(9, ...othersWent));
    await checked;
    expect(storage.asked).toEqual([]);
    expect(storage.calls).toEqual([1, 15].map((after) => `watch {"prefix":""} after ${after}`));
  });

  it("are compared if more changes than are recorded come each time", async () => {
    const storage = new Counting([object("a", 79)]);
    const changes = known("a");
    storage.onWatch = (stream, { upTo = 0 }) => {
      for (let at = upTo + 1; at < upTo + 71; at++)
        changes.advance(batch(at, ["MODIFIED", "a", at]));
      stream.push(batch(upTo, ["ADDED", "a", 3], ["ADDED", "b", 5], ["DELETED", "c", upTo]));
    };
    await expect(changes.check(storage, signal)).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    expect(storage.calls).toHaveLength(2);
    expect(storage.asked).toMatchObject([{ revision: 79 }]);
  });
});

describe("The changes of a kept state", () => {
  it("are its events, deletions as well, after the objects that are older", async () => {
    const changes = new RecentChanges(
      { prefix: "" },
      { clock: new FakeClock(), has: (key) => key !== "gone" },
    );
    const { events } = batch(9, ["MODIFIED", "a", 7], ["DELETED", "gone", 8]);
    const objects = [object("a", 7), object("b", 3)];
    changes.restore({ objects, revision: 9, events, eventsAfter: 5 });
    const past = [
      ["ADDED", "b", 3],
      ["MODIFIED", "a", 7],
    ] as const;
    const same = withEvents([], ...past, ["DELETED", "gone", 8]);
    await changes.check(same, signal);
    expect(same.asked).toEqual([]);
    const other = withEvents([...objects, object("gone", 2)], ...past);
    await expect(changes.check(other, signal)).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    const compared = new Counting(objects);
    compared.onWatch = (stream) => stream.end(revisionTooOld(7, 9));
    await changes.check(compared, signal);
    expect(compared.asked).toMatchObject([{ after: 0, limit: 3 }]);
  });
});
