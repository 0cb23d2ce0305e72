import { describe, expect, test } from "vitest";
import { MemoryStorage } from "../../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../../src/storage/memory/memory-store.ts";
import type { WatchStream } from "../../../../src/storage/storage.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { bytes, exact, expectFailure } from "../../conformance/opened.ts";
import { TestJournal } from "./test-journal.ts";

/** A store with this number of revisions, of which the last three are in memory. */
async function open(revisions: number) {
  const clock = new FakeClock();
  const journal = new TestJournal([], true);
  const onFault = (error: Error): void => {
    throw error;
  };
  const store = await MemoryStore.open({ clock, journal, onFault, maxLogRevisions: 3 });
  const storage = new MemoryStorage({ store, resource: "things", prefix: "a/" });
  const writes = Array.from({ length: revisions - 1 }, (_, i) =>
    storage.put({ key: `${i % 7}`, value: bytes(`${i}`) }),
  );
  await clock.settle();
  await Promise.all(writes);
  journal.reads.length = 0;
  return { clock, journal, store, storage };
}

/** Follows a watch as a reader that reads whenever it can. */
function follow(stream: WatchStream): number[] {
  const revisions: number[] = [];
  const read = (): void => {
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      revisions.push(...batch.events.map((event) => event.revision));
    }
  };
  stream.onReadable(read);
  read();
  return revisions;
}

const all = { scope: { prefix: "" }, withPrevious: true } as const;

describe("history that is not in memory", () => {
  test("is watched in chunks from the journal, and continues in memory without a gap", async () => {
    const { clock, journal, storage } = await open(2_500);
    const revisions = follow(storage.watch({ ...all, afterRevision: 1 }));
    await clock.settle();
    expect(revisions).toEqual(Array.from({ length: 2_499 }, (_, i) => i + 2));
    expect(journal.reads).toEqual(["changesAfter", "changesAfter", "changesAfter"]);
    const write = storage.put({ key: "new", value: bytes("1") });
    await clock.settle();
    await write;
    expect(revisions.at(-1)).toBe(2_501);
    expect(journal.reads).toHaveLength(3);
  });

  test("is read in small chunks, as thousands of clients that do not read have one each", async () => {
    const { clock, journal, storage } = await open(2);
    for (let i = 0; i < 32; i++) {
      const write = storage.put({ key: "large", value: new Uint8Array(32 * 1024) });
      await clock.settle();
      await write;
    }
    const stream = storage.watch({ ...all, afterRevision: 1 });
    stream.read();
    await clock.settle();
    const first = stream.read();
    expect(first?.events.length).toBe(6);
    expect(journal.reads).toHaveLength(1);
    stream.close();
  });

  test("is read only when the reader of a watch asks for it", async () => {
    const { clock, journal, storage } = await open(2_500);
    const stream = storage.watch({ ...all, afterRevision: 1 });
    await clock.settle();
    expect(journal.reads).toHaveLength(0);
    expect(stream.read()).toBeUndefined();
    await clock.settle();
    await clock.settle();
    expect(journal.reads).toHaveLength(1);
    expect(stream.read()?.revision).toBe(1_001);
    expect(stream.read()).toBeUndefined();
    await clock.settle();
    expect(journal.reads).toHaveLength(2);
    stream.close();
  });

  test("is not needed by a watch from the beginning while memory has all changes", async () => {
    const { clock, journal, storage } = await open(3);
    const revisions = follow(storage.watch({ ...all, afterRevision: 0 }));
    await clock.settle();
    expect(revisions).toEqual([2, 3]);
    expect(journal.reads).toEqual([]);
  });

  test("is given to a watch that was slower than the history in memory", async () => {
    const { clock, journal, storage } = await open(5);
    const stream = storage.watch({ ...all, afterRevision: 5 });
    for (let i = 0; i < 20; i++) {
      const write = storage.put({ key: "a", value: bytes(`${i}`) });
      await clock.settle();
      await write;
    }
    const revisions = follow(stream);
    await clock.settle();
    expect(revisions).toEqual(Array.from({ length: 20 }, (_, i) => i + 6));
    expect(journal.reads).toContain("changesAfter");
  });

  test("ends a watch with REVISION_TOO_OLD if it is dropped before it was read", async () => {
    const { clock, journal, storage } = await open(50);
    const stream = storage.watch({ ...all, afterRevision: 10 });
    journal.dropBefore(30);
    const revisions = follow(stream);
    await clock.settle();
    expect(revisions).toEqual([]);
    expect(stream.ended).toMatchObject({ reason: "REVISION_TOO_OLD" });
    const early = storage.watch({ ...all, afterRevision: 10 });
    expect(early.ended).toMatchObject({ reason: "REVISION_TOO_OLD" });
    await expectFailure(storage.list({ prefix: "", limit: 0, at: exact(29) }), "REVISION_TOO_OLD");
  });

  test("is read two at a time, and by each in turn", async () => {
    const { clock, journal, storage } = await open(5_000);
    const held = Promise.withResolvers<void>();
    journal.held = held.promise;
    const streams = Array.from({ length: 5 }, () => storage.watch({ ...all, afterRevision: 1 }));
    const read = streams.map(follow);
    const lists = Array.from({ length: 5 }, () =>
      storage.list({ prefix: "", limit: 3, at: exact(9) }),
    );
    await clock.settle();
    expect(journal.reads).toHaveLength(2);
    held.resolve();
    await clock.settle();
    expect((await Promise.all(lists)).map(({ items }) => items.length)).toEqual([3, 3, 3, 3, 3]);
    for (const revisions of read) expect(revisions).toHaveLength(4_999);
    expect(journal.mostReads).toBe(2);
    // The lists, which came last, did not wait for all chunks of the watches.
    expect(journal.reads.lastIndexOf("page")).toBeLessThan(12);
    expect(journal.reads.length).toBeGreaterThan(25);
  });

  test("is listed in pages, without raw keys, and with what comes after a key", async () => {
    const { clock, journal, store, storage } = await open(8);
    const write = store.update((draft) => {
      for (const key of ["a/", "a/\udcff", "b"]) draft.put(key, bytes("raw"), 0n);
    });
    await clock.settle();
    const { revision } = await write;
    for (let i = 0; i < 5; i++) {
      const more = storage.put({ key: "9", value: bytes(`${i}`) });
      await clock.settle();
      await more;
    }
    const page = async (startAfter: string | undefined, limit: number) => {
      const request = { prefix: "", startAfter, limit, at: exact(revision) };
      const { items, next, remaining } = await storage.list(request);
      return { keys: items.map(({ key }) => key), next, remaining };
    };
    journal.reads.length = 0;
    expect(await page(undefined, 0)).toMatchObject({ next: undefined, remaining: 0 });
    expect(await page(undefined, 3)).toEqual({
      keys: ["0", "1", "2"],
      next: "2",
      remaining: undefined,
    });
    expect((await page("2", 0)).keys).toEqual(["3", "4", "5", "6"]);
    expect(await page("6", 5)).toEqual({ keys: [], next: undefined, remaining: 0 });
    expect(journal.reads.every((name) => name === "page")).toBe(true);
    const interval = { from: "a/", to: "a0" };
    expect(await store.count(interval, revision)).toBe(9);
    expect(
      (await storage.withRawKeys().get({ key: "\udcff", at: exact(revision) })).object,
    ).toBeDefined();
  });

  test("is not read any more for a caller that has given up", async () => {
    const { clock, journal, storage } = await open(50);
    const held = Promise.withResolvers<void>();
    journal.held = held.promise;
    const abort = new AbortController();
    const { signal } = abort;
    const lists = Array.from({ length: 3 }, () =>
      storage.list({ prefix: "", limit: 0, at: exact(9), signal }),
    );
    const ended = Promise.allSettled(lists);
    await clock.settle();
    abort.abort(new RangeError("enough"));
    held.resolve();
    for (const result of await ended) {
      expect(result).toMatchObject({ status: "rejected", reason: { name: "RangeError" } });
    }
    expect(journal.reads).toHaveLength(2);
    const next = storage.get({ key: "0", at: exact(9) });
    await clock.settle();
    expect((await next).object?.key).toBe("0");
  });

  test("that can't be read is UPSTREAM_UNAVAILABLE, and the store continues", async () => {
    const { clock, journal, storage } = await open(50);
    journal.held = Promise.reject(new Error("The file is damaged."));
    journal.held.catch(() => {});
    await expectFailure(storage.get({ key: "0", at: exact(9) }), "UPSTREAM_UNAVAILABLE");
    const stream = storage.watch({ ...all, afterRevision: 5 });
    follow(stream);
    await clock.settle();
    expect(stream.ended).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    const write = storage.put({ key: "0", value: bytes("1") });
    await clock.settle();
    expect((await write).revision).toBe(51);
  });
});
