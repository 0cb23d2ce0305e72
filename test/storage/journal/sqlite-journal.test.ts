import { spawnSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { KeptRequest } from "../../../src/storage/journal/journal.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { FakeClock } from "../../fake-clock.ts";
import { JournalModel, seen, seenChanges } from "./model.ts";
import { del, noBounds, openJournal, put, state, testFolder, write } from "./opened.ts";

function request(number: number): KeptRequest {
  return { id: `request ${number}`, fingerprint: "f", revision: number, before: number };
}

describe("A new journal", () => {
  test("is empty, at revision 1, with a history of its own", async () => {
    const journal = await openJournal();
    const other = await openJournal();
    expect(journal.revision).toBe(1);
    expect(journal.oldest).toBe(1);
    expect(journal.historyId).toMatch(/^[0-9a-f-]{36}$/);
    expect(journal.historyId).not.toBe(other.historyId);
    expect(await state(journal)).toEqual([]);
    expect(await journal.leases()).toEqual([]);
    expect(await journal.requests()).toEqual([]);
  });

  test("is a file that only its owner can read, in a folder that only its owner can enter", async () => {
    const file = join(testFolder(), "new", "data");
    const journal = await openJournal({ file });
    await write(journal, new JournalModel(), put("a"));
    expect(statSync(join(file, "..")).mode & 0o777).toBe(0o700);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(`${file}-wal`).mode & 0o777).toBe(0o600);
  });

  test("is alone in its folder, and closed it is one file", async () => {
    const folder = testFolder();
    const journal = await openJournal({ file: join(folder, "data") });
    await write(journal, new JournalModel(), put("a"));
    expect(readdirSync(folder).sort()).toEqual(["data", "data-wal"]);
    await journal.close();
    expect(readdirSync(folder)).toEqual(["data"]);
  });
});

describe("A journal that is opened again", () => {
  test("has its history, state, leases and requests", async () => {
    const file = join(testFolder(), "data");
    const model = new JournalModel();
    const first = await openJournal({ file });
    const lease = { id: 2n ** 63n - 1n, ttlSeconds: 30, isGranted: true };
    await first.commit([{ type: "lease", lease }]);
    await first.commit([{ type: "lease", lease: { ...lease, id: 5n, isGranted: false } }]);
    await first.commit([{ type: "lease", lease: { ...lease, id: 6n } }]);
    await first.commit([{ type: "lease ended", id: 6n }]);
    await first.commit([{ type: "lease ended", id: 7n }]);
    const entry = model.write([put("b"), put("a", "x")]);
    if (entry?.type !== "changes") throw new Error("no changes");
    await first.commit([{ ...entry, request: request(2) }]);
    await first.commit([{ type: "request", request: request(1) }]);
    await first.close();
    const again = await openJournal({ file });
    expect(again.historyId).toBe(first.historyId);
    expect(again.revision).toBe(2);
    expect((await state(again)).map(seen)).toEqual([...model.stateAt(2).values()].map(seen));
    expect(await again.leases()).toEqual([{ ...lease, id: 5n, isGranted: false }, lease]);
    expect(await again.requests()).toEqual([request(2), request(1)]);
  });

  test("has the id that its history was given last", async () => {
    const file = join(testFolder(), "data");
    const first = await openJournal({ file });
    await first.commit([{ type: "history", historyId: "other" }]);
    expect(first.historyId).toBe("other");
    await first.close();
    expect((await openJournal({ file })).historyId).toBe("other");
  });

  test("has the newest 10,000 requests", async () => {
    const file = join(testFolder(), "data");
    const first = await openJournal({ file });
    const all = Array.from({ length: 10_005 }, (_, number) => request(number));
    await first.commit(all.map((one) => ({ type: "request", request: one })));
    await first.close();
    expect(await (await openJournal({ file })).requests()).toEqual(all.slice(5));
  });

  test("reads a state of many parts in key order, with values of any size", async () => {
    const file = join(testFolder(), "data");
    const model = new JournalModel();
    const first = await openJournal({ file });
    const sizes = [0, 1, 300, 3_000, 100_000, 1_500_000];
    const writes = Array.from({ length: 600 }, (_, i) => {
      return put(`key ${(i * 7_919) % 600}`, sizes[i % 60] ?? 200);
    });
    await write(first, model, ...writes);
    await write(first, model, del("key 1"), del("key 599"), put("key 3", 7));
    await first.close();
    const found = await state(await openJournal({ file }));
    expect(found.map(seen)).toEqual([...model.stateAt(model.revision).values()].map(seen));
  });
});

describe("A commit", () => {
  test("has several revisions, or other entries only", async () => {
    const journal = await openJournal();
    const model = new JournalModel();
    const entries = [[put("a")], [put("a", "2"), put("b")], [del("a")]].flatMap(
      (writes) => model.write(writes) ?? [],
    );
    await journal.commit(entries);
    await journal.commit([]);
    expect(journal.revision).toBe(4);
    const all = { ...noBounds, after: 1, upTo: 4 };
    expect(seenChanges(await journal.changesAfter(all))).toEqual(seenChanges(model.revisions));
  });

  test("copies nothing but its own parts of the buffers that objects share", async () => {
    const journal = await openJournal();
    const slab = Buffer.alloc(50_000_000, "x");
    const object = new StoredObject("a", slab, 2, 2, 1, 0n, 10, 15);
    const event = new WatchEvent("ADDED", object, undefined);
    await journal.commit([{ type: "changes", revision: 2, events: [event] }]);
    expect(slab.byteLength).toBe(50_000_000);
    expect(journal.bytes).toBeLessThan(1_000_000);
    const page = await journal.page({ ...noBounds, revision: 2, from: "", to: undefined });
    expect(page.objects.map(({ value }) => Buffer.from(value).toString())).toEqual(["xxxxx"]);
  });

  test("of a revision that does not follow is a fault, which ends all commits", async () => {
    const journal = await openJournal();
    const event = new WatchEvent(
      "ADDED",
      new StoredObject("a", slabOf("1"), 5, 5, 1, 0n),
      undefined,
    );
    const wrong = journal.commit([{ type: "changes", revision: 5, events: [event] }]);
    await expect(wrong).rejects.toThrow("revision 5 does not follow 1");
    await expect(journal.commit([])).rejects.toThrow("It is not known what the data file");
    expect(await state(journal)).toEqual([]);
  });
});

function slabOf(text: string): Uint8Array {
  return Buffer.from(text);
}

describe("Reads", () => {
  test("of a revision that is not kept are REVISION_TOO_OLD, with the oldest one", async () => {
    const journal = await openJournal();
    const model = new JournalModel();
    for (let i = 0; i < 5; i++) await write(journal, model, put("a", String(i)));
    await journal.commit([{ type: "compacted", revision: 4 }]);
    expect(journal.oldest).toBe(4);
    const old = { reason: "REVISION_TOO_OLD", metadata: { oldest_revision: "4" } };
    const page = { ...noBounds, from: "", to: undefined };
    await expect(journal.page({ ...page, revision: 3 })).rejects.toMatchObject(old);
    await expect(journal.changesAfter({ ...noBounds, after: 3, upTo: 9 })).rejects.toMatchObject(
      old,
    );
    await expect(journal.history({ ...noBounds, key: "a", upTo: 3 })).rejects.toMatchObject(old);
    expect((await journal.page({ ...page, revision: 4 })).objects).toHaveLength(1);
    expect(await journal.changesAfter({ ...noBounds, after: 4, upTo: 9 })).toHaveLength(2);
  });

  test("of changes end after the revision that reaches a bound", async () => {
    const journal = await openJournal();
    const model = new JournalModel();
    for (let i = 0; i < 9; i++) await write(journal, model, put("a", 1_000), put(`b${i}`, 1_000));
    const all = { ...noBounds, after: 1, upTo: 100 };
    const count = async (bounds: object) =>
      (await journal.changesAfter({ ...all, ...bounds })).length;
    expect(await count({})).toBe(9);
    expect(await count({ maxEvents: 1 })).toBe(1);
    expect(await count({ maxEvents: 3 })).toBe(2);
    expect(await count({ maxBytes: 1 })).toBe(1);
    expect(await count({ maxBytes: 4_000 })).toBe(2);
    expect(await count({ upTo: 4 })).toBe(3);
    expect(await count({ after: 10 })).toBe(0);
  });

  test("that are aborted reject with the reason, and the next ones are answered", async () => {
    const journal = await openJournal();
    const model = new JournalModel();
    await write(journal, model, put("a"));
    const signal = AbortSignal.abort(new Error("enough"));
    const page = { ...noBounds, revision: 2, from: "", to: undefined };
    await expect(journal.page({ ...page, signal })).rejects.toThrow("enough");
    const ending = new AbortController();
    const aborted = journal.page({ ...page, signal: ending.signal });
    ending.abort(new Error("later"));
    await expect(aborted).rejects.toThrow("later");
    expect((await journal.page(page)).objects).toHaveLength(1);
  });

  test("that wait are bounded in number", async () => {
    const journal = await openJournal();
    const read = () => journal.history({ ...noBounds, key: "a", upTo: 1 });
    const reads = Array.from({ length: 8 + 256 }, read);
    await expect(read()).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    expect(await Promise.all(reads)).toHaveLength(264);
    await expect(read()).resolves.toEqual({ events: [], next: undefined });
  });

  test("of a page skip the versions of a key that was written often, and deleted keys", async () => {
    const journal = await openJournal();
    const model = new JournalModel();
    for (let i = 0; i < 100; i++) {
      await write(journal, model, put("b", String(i)), put(`c${i % 7}`), del(`c${(i + 3) % 7}`));
      if (i % 10 === 0) await write(journal, model, put("a"), put("d", "x"));
    }
    for (const revision of [2, 10, 30, 60, model.revision]) {
      const request = { revision, from: "", to: undefined, limit: 2, maxBytes: 1e6 };
      const found = await journal.page(request);
      expect(found.objects.map(seen)).toEqual(model.page(request).objects.map(seen));
    }
  });
});

describe("A closed journal", () => {
  test("refuses calls, and closing it is idempotent", async () => {
    const journal = await openJournal();
    const commit = journal.commit([{ type: "history", historyId: "kept" }]);
    const closing = journal.close();
    await expect(commit).resolves.toBeUndefined();
    await Promise.all([closing, journal.close()]);
    await expect(journal.commit([])).rejects.toThrow("is closed");
    await expect(journal.leases()).rejects.toThrow("is closed");
  });

  test("leaves no timer", async () => {
    const clock = new FakeClock();
    const journal = await openJournal({ clock });
    await journal.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("does not keep the process, nor does an idle one, and nothing is printed", () => {
    const source = `
      import { SqliteJournal } from ${JSON.stringify(join(process.cwd(), "src/storage/journal/sqlite-journal.ts"))};
      import { systemClock } from ${JSON.stringify(join(process.cwd(), "src/base/clock.ts"))};
      const journal = await SqliteJournal.open(process.argv[1], { clock: systemClock });
      await journal.commit([{ type: "history", historyId: "of the child" }]);
      console.log(journal.historyId);
    `;
    const file = join(testFolder(), "data");
    const args = [
      "--disable-warning=ExperimentalWarning",
      "--input-type=module",
      "-e",
      source,
      file,
    ];
    const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect({ stdout, stderr, status }).toEqual({ stdout: "of the child\n", stderr: "", status: 0 });
  });
});

test("A journal that can't be opened in time is given up", async () => {
  const file = join(testFolder(), "data");
  const signal = AbortSignal.abort(new Error("too slow"));
  const opening = SqliteJournal.open(file, { clock: new FakeClock() }, signal);
  await expect(opening).rejects.toThrow("too slow");
  await (await openJournal({ file })).close();
});
