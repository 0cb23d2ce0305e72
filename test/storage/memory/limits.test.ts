import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { hasReason } from "../../../src/base/errors.ts";
import {
  MemoryStorage,
  type MemoryStorageOptions,
} from "../../../src/storage/memory/memory-storage.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { bytes, exact, expectFailure, linearizable, put, remove } from "../conformance/opened.ts";
import type { FillOptions } from "./filling.ts";

const all = { scope: { prefix: "" }, withPrevious: true } as const;

function open(options: Omit<MemoryStorageOptions, "clock"> = {}) {
  const clock = new FakeClock();
  return { clock, storage: new MemoryStorage({ clock, ...options }) };
}

async function valueAt(storage: Storage, key: string, revision: number): Promise<string> {
  const { object } = await storage.get({ key, at: exact(revision) });
  return Buffer.from(object?.value ?? []).toString();
}

describe("the revisions of a MemoryStorage are a fresh etcd's", () => {
  test("it begins at 1, and the first write is 2", async () => {
    const { storage } = open();
    expect(await storage.currentRevision()).toBe(1);
    expect((await storage.put({ key: "a", value: bytes("1") })).revision).toBe(2);
    expect((await storage.list({ prefix: "", limit: 0, at: exact(1) })).items).toEqual([]);
  });

  test("a transaction makes one, and none if it changes nothing", async () => {
    const { storage } = open();
    expect(await storage.txn([put("a"), put("b"), remove("c")])).toBe(2);
    expect(await storage.txn([remove("c"), remove("d")])).toBe(2);
    expect(await storage.txn([])).toBe(2);
    expect(await storage.txn([remove("a"), put("c")])).toBe(3);
  });

  test.each([
    ["put twice", [put("b"), put("a"), put("a")]],
    ["put and deleted", [put("a"), remove("a")]],
  ])("a transaction with a key %s is refused whole", async (_, operations) => {
    const { storage } = open();
    await expectFailure(storage.txn(operations), "INVALID_REQUEST");
    expect(await storage.currentRevision()).toBe(1);
  });

  test("a transaction has the maximum size of one request", async () => {
    const { storage } = open();
    const half = new Uint8Array(1024 * 1024);
    await expectFailure(storage.txn([put("a", half), put("b", half)]), "VALUE_TOO_LARGE");
    expect((await storage.list({ prefix: "", limit: 0, at: linearizable })).items).toEqual([]);
  });
});

describe("compaction of a MemoryStorage", () => {
  test("keeps the state at its revision and all that came later, and nothing older", async () => {
    const { storage } = open();
    await storage.txn([put("a", "2"), put("gone", "2")]);
    await storage.txn([put("a", "3"), remove("gone")]);
    await storage.txn([put("a", "4"), put("b", "4")]);
    await storage.compact(3);
    const tooOld = { requested_revision: "2" };
    await expectFailure(storage.get({ key: "a", at: exact(2) }), "REVISION_TOO_OLD", tooOld);
    expect(await valueAt(storage, "a", 3)).toBe("3");
    expect(await valueAt(storage, "a", 4)).toBe("4");
    const at3 = await storage.list({ prefix: "", limit: 0, at: exact(3) });
    expect(at3.items.map((object) => object.key)).toEqual(["a"]);
  });

  test("decides from which revision on a watch can continue", async () => {
    const { storage } = open();
    for (const value of ["2", "3", "4"]) await storage.put({ key: "a", value: bytes(value) });
    await storage.compact(3);
    expect(storage.watch({ ...all, afterRevision: 2 }).ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "2", oldest_revision: "3" },
    });
    const events = storage.watch({ ...all, afterRevision: 3 }).read()?.events;
    expect(events?.map((event) => event.revision)).toEqual([4]);
  });

  test("to the same revision, or of an empty store, has no effect", async () => {
    const { storage } = open();
    await storage.compact(1);
    await storage.put({ key: "a", value: bytes("2") });
    await storage.compact(2);
    await storage.compact(2);
    await storage.compact(1);
    expect(await valueAt(storage, "a", 2)).toBe("2");
    expect((await storage.put({ key: "a", value: bytes("3") })).object.version).toBe(2);
  });

  test("of a future revision is refused", async () => {
    const { storage } = open();
    await expectFailure(storage.compact(2), "HISTORY_CHANGED");
    await expectFailure(storage.compact(0), "INVALID_REQUEST");
  });

  test("drops the oldest revisions above their maximum number", async () => {
    const { storage } = open({ maxLogRevisions: 3 });
    for (const value of ["2", "3", "4", "5", "6"]) {
      await storage.txn([put("a", value), value === "4" ? remove("b") : put("b", value)]);
    }
    // 4, 5 and 6 are kept, and the state before them.
    expect(await valueAt(storage, "a", 3)).toBe("3");
    expect(await valueAt(storage, "b", 3)).toBe("3");
    await expectFailure(storage.get({ key: "a", at: exact(2) }), "REVISION_TOO_OLD");
  });

  test("drops the oldest revisions above their maximum size, but not the newest", async () => {
    const { storage } = open({ maxLogBytes: 12_000 });
    for (let i = 0; i < 20; i++) await storage.put({ key: "a", value: new Uint8Array(1000) });
    await storage.get({ key: "a", at: exact(18) });
    await expectFailure(storage.get({ key: "a", at: exact(10) }), "REVISION_TOO_OLD");
    const { revision } = await storage.put({ key: "a", value: new Uint8Array(100_000) });
    const stream = storage.watch({ ...all, afterRevision: revision - 1 });
    expect(stream.read()?.events.length).toBe(1);
  });

  test("drops deleted keys, so that short-lived keys take no memory", async () => {
    const { storage } = open({ maxLogRevisions: 1 });
    for (let i = 0; i < 100; i++) {
      await storage.put({ key: `${i}`, value: bytes("") });
      await storage.delete({ key: `${i}` });
    }
    const { revision } = await storage.put({ key: "0", value: bytes("") });
    const { object } = await storage.get({ key: "0", at: linearizable });
    expect([object?.createRevision, object?.version]).toEqual([revision, 1]);
    expect((await storage.list({ prefix: "", limit: 0, at: linearizable })).items.length).toBe(1);
  });
});

describe("a MemoryStorage's stream that is not read", () => {
  test("loses nothing while the history lasts, in batches of bounded size", async () => {
    const { clock, storage } = open();
    const stream = storage.watch({ ...all, afterRevision: 1 });
    for (let i = 0; i < 2500; i++) await storage.put({ key: `${i % 10}`, value: bytes(`${i}`) });
    clock.runImmediates();
    const revisions: number[] = [];
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      expect(batch.events.length).toBeLessThanOrEqual(1000);
      revisions.push(...batch.events.map((event) => event.revision));
    }
    expect(revisions).toEqual(Array.from({ length: 2500 }, (_, i) => i + 2));
  });

  test("gets large values a few at a time", async () => {
    const { storage } = open();
    const stream = storage.watch({ ...all, withPrevious: false, afterRevision: 1 });
    const value = new Uint8Array(100_000);
    for (let i = 0; i < 10; i++) await storage.put({ key: "a", value });
    const sizes: number[] = [];
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      sizes.push(batch.events.length);
    }
    expect(sizes).toEqual([3, 3, 3, 1]);
  });

  test("ends with REVISION_TOO_OLD when the history is compacted past it, never in silence", async () => {
    const { clock, storage } = open({ maxLogRevisions: 10 });
    const stream = storage.watch({ ...all, afterRevision: 1 });
    let notified = 0;
    stream.onReadable(() => notified++);
    expect(stream.read()).toBeUndefined();
    for (let i = 0; i < 50; i++) await storage.put({ key: "a", value: bytes(`${i}`) });
    expect(stream.read()).toBeUndefined();
    clock.runImmediates();
    // The reader has found the end without the listener.
    expect(notified).toBe(0);
    expect(stream.ended).toMatchObject({
      reason: "REVISION_TOO_OLD",
      metadata: { requested_revision: "1", oldest_revision: "41" },
    });
  });

  test.each([
    [10, undefined],
    [11, "REVISION_TOO_OLD"],
  ])("can be behind by the 10 kept revisions and no more: after %d, %s", async (behind, reason) => {
    const { storage } = open({ maxLogRevisions: 10 });
    const stream = storage.watch({ ...all, afterRevision: 1 });
    for (let i = 0; i < behind; i++) await storage.put({ key: "a", value: bytes(`${i}`) });
    expect(stream.read()?.events.length).toBe(reason === undefined ? behind : undefined);
    if (reason === undefined) expect(stream.ended).toBeUndefined();
    else expect(stream.ended).toMatchObject({ reason });
  });

  test("delivers the announced batch, then its end", async () => {
    const { clock, storage } = open({ maxLogRevisions: 10 });
    const stream = storage.watch({ ...all, afterRevision: 1 });
    await storage.put({ key: "a", value: bytes("first") });
    clock.runImmediates();
    for (let i = 0; i < 50; i++) await storage.put({ key: "a", value: bytes(`${i}`) });
    expect(stream.ended).toBeUndefined();
    expect(stream.read()?.events.map((event) => event.revision)).toEqual([2]);
    expect(stream.read()).toBeUndefined();
    expect(hasReason(stream.ended, "REVISION_TOO_OLD")).toBe(true);
  });

  test("is not ended by events outside its scope", async () => {
    const { clock, storage } = open({ maxLogRevisions: 10 });
    const stream = storage.watch({ scope: { key: "mine" }, withPrevious: true, afterRevision: 1 });
    for (let i = 0; i < 100; i++) {
      await storage.put({ key: "others'", value: bytes(`${i}`) });
      clock.runImmediates();
    }
    await storage.put({ key: "mine", value: bytes("at last") });
    expect(stream.read()?.events.map((event) => event.object.key)).toEqual(["mine"]);
  });

  test("delivers bookmarks in a long history without events for it", async () => {
    const { storage } = open();
    const operations = Array.from({ length: 1000 }, (_, i) => put(`${i}`));
    for (let i = 0; i < 25; i++) await storage.txn(operations);
    const stream = storage.watch({ scope: { key: "mine" }, withPrevious: true, afterRevision: 1 });
    const first = stream.read();
    expect(first?.events).toEqual([]);
    expect(first?.revision).toBe(11);
    expect(stream.read()?.revision).toBe(21);
    expect(stream.read()).toBeUndefined();
  });
});

describe("a MemoryStorage's listeners", () => {
  test("are called once for a burst, from an immediate and not from within the write", async () => {
    const { clock, storage } = open();
    const stream = storage.watch({ ...all, afterRevision: undefined });
    let calls = 0;
    stream.onReadable(() => calls++);
    stream.read();
    await storage.put({ key: "a", value: bytes("1") });
    await storage.txn([put("a"), put("b")]);
    storage.requestProgress();
    expect(calls).toBe(0);
    clock.runImmediates();
    expect(calls).toBe(1);
    // Not again before a read has returned nothing.
    await storage.put({ key: "a", value: bytes("2") });
    clock.runImmediates();
    expect(calls).toBe(1);
  });

  test("are called once for requested progress, with one bookmark", async () => {
    const { clock, storage } = open();
    await storage.put({ key: "a", value: bytes("1") });
    const stream = storage.watch({ ...all, scope: { key: "b" }, afterRevision: undefined });
    let calls = 0;
    stream.onReadable(() => calls++);
    expect(stream.read()).toBeUndefined();
    storage.requestProgress();
    expect(calls).toBe(0);
    clock.runImmediates();
    expect(calls).toBe(1);
    expect(stream.read()).toMatchObject({ revision: 2, events: [] });
    expect(stream.read()).toBeUndefined();
  });

  test("are not called for events outside the stream's scope, nor twice for an end", async () => {
    const { clock, storage } = open();
    const stream = storage.watch({ ...all, scope: { key: "a" }, afterRevision: undefined });
    let calls = 0;
    stream.onReadable(() => calls++);
    stream.read();
    await storage.put({ key: "b", value: bytes("1") });
    clock.runImmediates();
    expect(calls).toBe(0);
    stream.close();
    stream.close();
    clock.runImmediates();
    await storage.close();
    clock.runImmediates();
    expect(calls).toBe(1);
  });

  test("are called for existing history if the reader begins by waiting", async () => {
    const { clock, storage } = open();
    await storage.put({ key: "a", value: bytes("1") });
    const stream = storage.watch({ ...all, afterRevision: 1 });
    let calls = 0;
    stream.onReadable(() => calls++);
    clock.runImmediates();
    expect(calls).toBe(1);
  });

  test("that throw affect neither the write nor other listeners, and their errors are reported", async () => {
    const { clock, storage } = open();
    const streams = [1, 2, 3].map(() => storage.watch({ ...all, afterRevision: undefined }));
    const notified: number[] = [];
    streams.forEach((stream, i) => {
      stream.read();
      stream.onReadable(() => {
        notified.push(i);
        if (i < 2) throw new Error(`listener ${i} is broken`);
      });
    });
    const { revision } = await storage.put({ key: "a", value: bytes("1") });
    expect(revision).toBe(2);
    expect(() => clock.runImmediates()).toThrow(AggregateError);
    expect(notified).toEqual([0, 1, 2]);
    for (const stream of streams) expect(stream.read()?.revision).toBe(2);
  });

  test("leave nothing behind once the storage is closed", async () => {
    const { clock, storage } = open();
    const stream = storage.watch({ ...all, afterRevision: undefined });
    await storage.put({ key: "a", value: bytes("1") });
    await storage.close();
    expect(stream.ended).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    clock.runImmediates();
    expect(clock.pendingImmediates + clock.pendingTimers).toBe(0);
  });
});

describe("a MemoryStorage's page", () => {
  test.each([
    [10_000, 10_000],
    [10_001, undefined],
  ])("followed by %d objects has the remaining number %s", async (following, remaining) => {
    const { storage } = open();
    const keys = Array.from({ length: following + 1 }, (_, i) => String(i).padStart(6, "0"));
    await storage.txn(keys.map((key) => put(key)));
    const page = await storage.list({ prefix: "", limit: 1, at: linearizable });
    expect(page).toMatchObject({ next: "000000", remaining });
  });
});

/** Fills a store in a process with a small heap, and resolves to its output. */
async function filled(options: FillOptions): Promise<unknown> {
  const script = new URL("filling.ts", import.meta.url).pathname;
  const heap = "--max-old-space-size=64";
  const args = [heap, "--disable-warning=ExperimentalWarning", script, JSON.stringify(options)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  return JSON.parse(stdout);
}

describe("the memory of a MemoryStorage", () => {
  test("is bounded: a write above the bound is STORAGE_FULL and changes nothing", async () => {
    const { storage } = open({ maxStateBytes: 4000 });
    await storage.put({ key: "a", value: new Uint8Array(1000) });
    await storage.put({ key: "b", value: new Uint8Array(1000) });
    const more = { key: "c", value: new Uint8Array(1000) };
    await expectFailure(storage.put(more), "STORAGE_FULL");
    expect(await storage.currentRevision()).toBe(3);
    await storage.put({ key: "a", value: new Uint8Array(999) });
    await storage.delete({ key: "b" });
    await storage.put(more);
    expect(await storage.currentRevision()).toBe(6);
  });

  test.each<readonly [string, FillOptions]>([
    ["small objects", { valueBytes: 1 }],
    ["objects with long keys", { valueBytes: 1, keyChars: 500 }],
    ["large objects", { valueBytes: 1024 ** 2 }],
    ["objects that each have a lease", { valueBytes: 1, ttlSeconds: 100_000 }],
    ["objects that are changed again and again", { valueBytes: 100, rounds: 2 }],
    ["objects behind a Cacher", { valueBytes: 1, cached: true }],
  ])("is full before the heap is, by default: of %s", { timeout: 240_000 }, async (_what, fill) => {
    expect(await filled(fill)).toMatchObject({ reason: "STORAGE_FULL" });
  });

  test("does not include the writer's buffer, which may change or be a part of a larger one", async () => {
    const { storage } = open();
    const cut = Buffer.alloc(10_000, "x").subarray(5000, 5003);
    const { value } = (await storage.put({ key: "a", value: cut })).object;
    cut.fill("y");
    expect(Buffer.from(value).toString()).toBe("xxx");
    expect(value.buffer.byteLength).toBeLessThan(10_000);
  });

  test.each([{ maxLogRevisions: 0 }, { maxLogBytes: -1 }, { maxStateBytes: Number.NaN }])(
    "can't be bounded by %j",
    (options) => {
      const name = Object.keys(options)[0];
      expect(() => open(options)).toThrow(name);
    },
  );
});
