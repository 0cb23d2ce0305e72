import { describe, expect } from "vitest";
import type { Reason } from "../../../src/base/errors.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { type PlainObject, plainObject } from "./model.ts";
import {
  bytes,
  exact,
  expectFailure,
  linearizable,
  type Opened,
  put,
  storageTest,
} from "./opened.ts";

export function describeWrites(open: () => Promise<Opened>): void {
  describe("put", () => {
    storageTest(
      open,
      "increments the version and keeps the create revision",
      async ({ storage }) => {
        const first = await storage.put({ key: "a", value: bytes("1") });
        const second = await storage.put({ key: "a", value: bytes("2") });
        expect(numbers(first.object)).toEqual([first.revision, first.revision, 1]);
        expect(numbers(second.object)).toEqual([first.revision, second.revision, 2]);
        expect(second.revision).toBeGreaterThan(first.revision);
        await storage.delete({ key: "a" });
        const third = await storage.put({ key: "a", value: bytes("3") });
        expect(numbers(third.object)).toEqual([third.revision, third.revision, 1]);
      },
    );

    storageTest(open, "returns the object as later reads do", async ({ storage }) => {
      const { revision, object } = await storage.put({ key: "a/ü", value: bytes("é") });
      for (const at of [linearizable, exact(revision)]) {
        const got = await storage.get({ key: "a/ü", at });
        expect(got.object && plainObject(got.object)).toEqual(plainObject(object));
      }
      expect(object.lease).toBe(0n);
      expect(Buffer.from(object.value).toString()).toBe("é");
    });

    describe.each<{
      expected: string;
      of: (modRevision: number) => number | undefined;
      present: boolean;
      holds: boolean;
    }>([
      { expected: "nothing", of: () => undefined, present: false, holds: true },
      { expected: "nothing", of: () => undefined, present: true, holds: true },
      { expected: "absence", of: () => 0, present: false, holds: true },
      { expected: "absence", of: () => 0, present: true, holds: false },
      { expected: "its revision", of: (mod) => mod, present: true, holds: true },
      { expected: "its revision", of: (mod) => mod, present: false, holds: false },
      { expected: "an older revision", of: (mod) => mod - 1, present: true, holds: false },
      { expected: "a newer revision", of: (mod) => mod + 1, present: true, holds: false },
    ])("expecting $expected of a key that is there: $present", ({ of, present, holds }) => {
      storageTest(open, holds ? "writes" : "changes nothing", async ({ storage, write }) => {
        const start = await write([put(present ? "a" : "other", "old")]);
        const call = storage.put({ key: "a", value: bytes("new"), expectedModRevision: of(start) });
        if (holds) {
          expect((await call).object.version).toBe(present ? 2 : 1);
        } else {
          const modRevision = present ? start : 0;
          await expectFailure(call, "REVISION_CONFLICT", { mod_revision: String(modRevision) });
          expect(await storage.currentRevision()).toBe(start);
        }
        const got = await storage.get({ key: "a", at: linearizable });
        const value = holds ? "new" : present ? "old" : undefined;
        expect(got.object && plainObject(got.object).value).toBe(value);
      });
    });

    storageTest(open, "with an unknown lease is LEASE_NOT_FOUND", async ({ storage }) => {
      const start = await storage.currentRevision();
      const lease = 0x7fff_ffff_ffff_fffen;
      const call = storage.put({ key: "a", value: bytes("1"), lease });
      await expectFailure(call, "LEASE_NOT_FOUND", { lease: String(lease) });
      expect(await storage.currentRevision()).toBe(start);
    });

    storageTest(open, "keeps an empty value, and one of a megabyte", async ({ storage }) => {
      const large = new Uint8Array(1024 * 1024).map((_, i) => i % 251);
      await storage.put({ key: "empty", value: new Uint8Array() });
      await storage.put({ key: "large", value: large });
      const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
      expect(items.map((object) => object.value.byteLength)).toEqual([0, large.byteLength]);
      expect(Buffer.compare(items[1]?.value ?? new Uint8Array(), large)).toBe(0);
    });

    for (const kibibytes of [1600, 2048, 5120]) {
      storageTest(open, `of ${kibibytes} KiB is VALUE_TOO_LARGE`, async ({ storage }) => {
        const start = await storage.currentRevision();
        const value = new Uint8Array(kibibytes * 1024);
        await expectFailure(storage.put({ key: "a", value }), "VALUE_TOO_LARGE");
        expect(await storage.currentRevision()).toBe(start);
      });
    }
  });

  describe("delete", () => {
    describe.each<{
      expected: string;
      of: (modRevision: number) => number | undefined;
      present: boolean;
      reason?: Reason;
    }>([
      { expected: "nothing", of: () => undefined, present: true },
      { expected: "nothing", of: () => undefined, present: false, reason: "OBJECT_NOT_FOUND" },
      { expected: "its revision", of: (mod) => mod, present: true },
      { expected: "its revision", of: (mod) => mod, present: false, reason: "OBJECT_NOT_FOUND" },
      {
        expected: "an older revision",
        of: (mod) => mod - 1,
        present: true,
        reason: "REVISION_CONFLICT",
      },
    ])("expecting $expected of a key that is there: $present", ({ of, present, reason }) => {
      storageTest(open, reason ?? "deletes, and returns the deleted object", async (opened) => {
        const { storage, write } = opened;
        await write([put("a", "1"), put("other")]);
        const start = await write([put(present ? "a" : "other", "2")]);
        if (!present) await storage.delete({ key: "a" });
        const before = await storage.currentRevision();
        const call = storage.delete({ key: "a", expectedModRevision: of(start) });
        const got = () => storage.get({ key: "a", at: linearizable });
        if (reason === undefined) {
          const { revision, object } = await call;
          expect(revision).toBeGreaterThan(start);
          expect(plainObject(object)).toMatchObject({ value: "2", modRevision: start, version: 2 });
          expect((await got()).object).toBeUndefined();
          return;
        }
        const metadata =
          reason === "REVISION_CONFLICT"
            ? { mod_revision: String(start) }
            : { revision: String(before) };
        await expectFailure(call, reason, metadata);
        expect(await storage.currentRevision()).toBe(before);
        expect((await got()).object?.modRevision).toBe(present ? start : undefined);
      });
    });
  });

  describe("an invalid call is INVALID_REQUEST", () => {
    const value = bytes("1");
    const calls: [string, (opened: Opened) => Promise<unknown>][] = [
      ["put of an empty key", ({ storage }) => storage.put({ key: "", value })],
      ["put of half a surrogate pair", ({ storage }) => storage.put({ key: "a\ud800", value })],
      [
        "put expecting a negative revision",
        ({ storage }) => storage.put({ key: "a", value, expectedModRevision: -1 }),
      ],
      ["get of an empty key", ({ storage }) => storage.get({ key: "", at: linearizable })],
      [
        "get of half a surrogate pair",
        ({ storage }) => storage.get({ key: "\udc00a", at: linearizable }),
      ],
      ["delete of an empty key", ({ storage }) => storage.delete({ key: "" })],
      ["delete of half a surrogate pair", ({ storage }) => storage.delete({ key: "\ud800" })],
      [
        "delete expecting absence",
        ({ storage }) => storage.delete({ key: "a", expectedModRevision: 0 }),
      ],
    ];
    for (const [name, call] of calls) {
      storageTest(open, name, async (opened) => {
        const start = await opened.write([put("a")]);
        await expectFailure(call(opened), "INVALID_REQUEST");
        expect(await opened.storage.currentRevision()).toBe(start);
      });
    }
  });
}

function numbers(object: StoredObject): PlainObject[keyof PlainObject][] {
  const { createRevision, modRevision, version } = plainObject(object);
  return [createRevision, modRevision, version];
}
