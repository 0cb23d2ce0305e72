import { describe, expect, test } from "vitest";
import { keyBytes, keyText } from "../../../src/model/key-bytes.ts";
import { compareKeys } from "../../../src/model/key-order.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { objectTag, writeObject } from "../../../src/model/object-encoding.ts";
import { WireWriter } from "../../../src/protobuf/wire-writer.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { allKeys } from "../../../src/storage/memory/resource-keys.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";
import { bytes, exact, linearizable } from "../conformance/opened.ts";

const all = { prefix: "", limit: 0, at: linearizable } as const;

function open() {
  const clock = new FakeClock();
  const store = new MemoryStore({ clock });
  const resource = (name: string, prefix: string) =>
    new MemoryStorage({ store, resource: name, prefix });
  return { clock, store, resource };
}

async function keysOf(storage: Storage): Promise<string[]> {
  return (await storage.list(all)).items.map(({ key }) => key);
}

/** The object as it is sent, field by field. */
function encoded(object: StoredObject): Buffer {
  const writer = new WireWriter(Buffer.alloc(1_000));
  writeObject(writer, objectTag, object);
  return Buffer.from(writer.bytes.subarray(0, writer.position));
}

/** The same object without an encoded form. */
function plain(object: StoredObject): StoredObject {
  const copy = object.deletedAt(object.modRevision);
  expect(copy.encodedStart).toBe(-1);
  return copy;
}

describe("resources of one embedded store", () => {
  test("have the keys with their prefixes, and revisions in common", async () => {
    const { store, resource } = open();
    const [a, b] = [resource("a", "a/"), resource("b", "b/")];
    expect((await a.put({ key: "x", value: bytes("1") })).revision).toBe(2);
    expect((await b.put({ key: "x", value: bytes("2") })).revision).toBe(3);
    expect(await keysOf(a)).toEqual(["x"]);
    const { items } = await store.range({ ...all, interval: { from: "", to: undefined } });
    expect(items.map(({ key }) => key)).toEqual(["a/x", "b/x"]);
  });

  test("with overlapping prefixes have the same objects, each with the key as it names it", async () => {
    const { resource } = open();
    const [outer, inner] = [resource("outer", "a"), resource("inner", "a/b/")];
    await inner.put({ key: "x", value: bytes("1") });
    await outer.put({ key: "/b/y", value: bytes("2") });
    expect(await keysOf(outer)).toEqual(["/b/x", "/b/y"]);
    expect(await keysOf(inner)).toEqual(["x", "y"]);
    await outer.delete({ key: "/b/x" });
    await inner.put({ key: "y", value: bytes("3"), expectedModRevision: 3 });
    expect((await outer.get({ key: "/b/y", at: linearizable })).object?.version).toBe(2);
    const stream = inner.watch({ scope: { prefix: "" }, afterRevision: 1, withPrevious: true });
    const events = stream.read()?.events.map((event) => `${event.type} ${event.object.key}`);
    expect(events).toEqual(["ADDED x", "ADDED y", "DELETED x", "MODIFIED y"]);
  });

  test.each([
    ["", "a/"],
    ["a/", ""],
    ["a/", "a/b/"],
  ])("with prefixes %j and %j send objects with the right key", async (first, second) => {
    const { store, resource } = open();
    const both = [resource("first", first), resource("second", second)];
    for (const [i, each] of both.entries()) await each.put({ key: `a/b/${i}`, value: bytes("v") });
    for (const [i, each] of both.entries()) {
      for (const object of (await each.list(all)).items) {
        expect(encoded(object)).toEqual(encoded(plain(object)));
      }
      const written = (await each.get({ key: `a/b/${i}`, at: linearizable })).object;
      expect(written?.key).toBe(`a/b/${i}`);
    }
    for (const object of (await store.range({ ...all, interval: { from: "", to: undefined } }))
      .items) {
      expect(encoded(object)).toEqual(encoded(plain(object)));
    }
  });

  test("get what they have written in encoded form, without a copy", async () => {
    const { store, resource } = open();
    const a = resource("a", "a/");
    await a.put({ key: "x", value: bytes("1") });
    const [one] = (await a.list(all)).items;
    const { object: other } = await a.get({ key: "x", at: exact(2) });
    expect(one?.encodedStart).toBeGreaterThanOrEqual(0);
    expect(one?.content).toBe(other?.content);
    const whole = await store.get("a/x", linearizable);
    expect(whole.object?.content).toBe(one?.content);
  });

  test("leave out raw keys, unless they are asked for", async () => {
    const { store, resource } = open();
    const a = resource("a", "a/");
    await store.update((draft) => {
      for (const key of ["a", "a/", "a/\udcff", "a/x", "a/\udc80y"]) draft.put(key, bytes("1"), 0n);
    });
    expect(await keysOf(a)).toEqual(["x"]);
    const raw = a.withRawKeys();
    expect(await keysOf(raw)).toEqual(["", "x", "\udc80y", "\udcff"]);
    expect((await raw.get({ key: "\udcff", at: linearizable })).object?.key).toBe("\udcff");
    const request = { scope: { prefix: "" }, afterRevision: 1, withPrevious: false };
    const seen = (storage: Storage) =>
      storage
        .watch(request)
        .read()
        ?.events.map(({ object }) => object.key);
    expect(seen(a)).toEqual(["x"]);
    expect(seen(raw)).toEqual(["", "\udcff", "x", "\udc80y"]);
    const page = await a.list({ ...all, limit: 1 });
    expect(page).toMatchObject({ next: undefined, remaining: 0 });
    expect(await store.deletePrefix({ resource: "a", prefix: "" })).toMatchObject({ deleted: 1 });
    expect(await keysOf(raw)).toEqual(["", "\udc80y", "\udcff"]);
  });

  test("name what is attached to a lease, and count what none of them has", async () => {
    const { store, resource } = open();
    const a = resource("a", "a/");
    const { lease } = (await a.put({ key: "x", value: bytes("1"), ttlSeconds: 10 })).object;
    await store.update((draft) => draft.put("elsewhere", bytes("1"), lease));
    const state = await store.leases.timeToLive(lease, true);
    expect(state).toMatchObject({ objects: [{ resource: "a", key: "x" }], others: 1 });
    const { keys } = await store.leases.attached(lease);
    expect(keys).toEqual(["a/x", "elsewhere"]);
    expect(await store.leases.ids()).toEqual([lease]);
  });
});

describe("whole keys", () => {
  const anyBytes = fc.uint8Array({ maxLength: 6 }).map((each) => Buffer.from(each));

  test("are in the order of their bytes", () => {
    fc.assert(
      fc.property(anyBytes, anyBytes, (a, b) => {
        const found = compareKeys(keyText(a), keyText(b));
        expect(Math.sign(found)).toBe(Math.sign(Buffer.compare(a, b)));
      }),
      { numRuns: 2_000 },
    );
  });

  test("begin with a prefix, and continue with the relative key", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 3 }), anyBytes, (prefix, rest) => {
        const whole = keyText(Buffer.concat([Buffer.from(prefix), rest]));
        expect(whole.startsWith(prefix)).toBe(true);
        expect(keyBytes(whole.slice(prefix.length))).toEqual(rest);
      }),
    );
  });

  test("of an interval are what its bytes say", async () => {
    const { store } = open();
    await fc.assert(
      fc.asyncProperty(fc.array(anyBytes), anyBytes, anyBytes, async (keys, from, to) => {
        const known = new Set(keys.map((key) => keyText(key)));
        await store.update((draft) => {
          for (const { key } of draft.range("", undefined)) draft.delete(key);
        });
        await store.update((draft) => {
          for (const key of known) draft.put(key, bytes("1"), 0n);
        });
        const interval = { from: keyText(from), to: keyText(to) };
        const { items } = await store.range({ ...all, interval }, allKeys);
        const expected = [...known]
          .map((key) => keyBytes(key))
          .filter((key) => Buffer.compare(key, from) >= 0 && Buffer.compare(key, to) < 0)
          .sort(Buffer.compare);
        expect(items.map(({ key }) => keyBytes(key))).toEqual(expected);
      }),
    );
  });
});
