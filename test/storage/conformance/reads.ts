import { describe, expect, test } from "vitest";
import type { RevisionRequirement } from "../../../src/storage/storage.ts";
import { Model, plainObject } from "./model.ts";
import {
  bytes,
  exact,
  expectFailure,
  linearizable,
  type Opened,
  put,
  remove,
  storageTest,
  type Traits,
} from "./opened.ts";

export function describeReads(open: () => Promise<Opened>, traits: Traits): void {
  describe("get", () => {
    const requirements: [string, (revision: number) => RevisionRequirement][] = [
      ["LINEARIZABLE", () => linearizable],
      ["NOT_OLDER_THAN the write", (revision) => ({ match: "NOT_OLDER_THAN", revision })],
      ["EXACT at the write", exact],
    ];
    for (const [name, at] of requirements) {
      storageTest(open, `${name} sees a write made behind the storage`, async (opened) => {
        const { storage, write } = opened;
        const revision = await write([put("a", "1")]);
        const got = await storage.get({ key: "a", at: at(revision) });
        expect(got.object && plainObject(got.object)).toEqual({
          key: "a",
          value: "1",
          createRevision: revision,
          modRevision: revision,
          version: 1,
          lease: 0n,
        });
        expect(got.revision).toBeGreaterThanOrEqual(revision);
      });
    }

    storageTest(open, "ANY is some state between the first and the newest", async (opened) => {
      const { storage, write } = opened;
      const start = await storage.currentRevision();
      const model = new Model();
      for (const value of ["1", "2", "3"])
        model.apply(await write([put("a", value)]), [put("a", value)]);
      const { revision, object } = await storage.get({ key: "a", at: { match: "ANY" } });
      expect(revision).toBeGreaterThanOrEqual(start);
      expect(revision).toBeLessThanOrEqual(await storage.currentRevision());
      expect(object === undefined ? [] : [plainObject(object)]).toEqual(model.stateAt(revision));
    });

    storageTest(open, "ANY does not return an older state than an earlier read", async (opened) => {
      const { storage, write } = opened;
      const revision = await write([put("a", "1")]);
      await storage.get({ key: "a", at: { match: "NOT_OLDER_THAN", revision } });
      const got = await storage.get({ key: "a", at: { match: "ANY" } });
      expect(got.revision).toBeGreaterThanOrEqual(revision);
      expect(got.object?.modRevision).toBe(revision);
    });

    storageTest(open, "of an absent key has no object, at a revision", async (opened) => {
      const { storage, write } = opened;
      const revision = await write([put("ab", "1")]);
      const got = await storage.get({ key: "a", at: linearizable });
      expect(got.object).toBeUndefined();
      expect(got.revision).toBeGreaterThanOrEqual(revision);
    });

    storageTest(open, "EXACT has the object of every revision", async (opened) => {
      const { storage, write } = opened;
      const start = await storage.currentRevision();
      const steps = [put("a", "1"), put("b"), put("a", "2"), remove("a"), put("a", "3"), put("b")];
      const model = new Model();
      for (const step of steps) model.apply(await write([step]), [step]);
      for (const revision of [start, ...model.revisions]) {
        const got = await storage.get({ key: "a", at: exact(revision) });
        expect(got.revision).toBe(revision);
        const expected = model.stateAt(revision).find((object) => object.key === "a");
        expect(got.object && plainObject(got.object)).toEqual(expected);
      }
    });

    storageTest(open, "keeps an empty value and every byte of a binary one", async (opened) => {
      const { storage, write } = opened;
      const all = Uint8Array.from({ length: 256 }, (_, i) => i);
      await write([put("empty", new Uint8Array()), put("all", all)]);
      const empty = await storage.get({ key: "empty", at: linearizable });
      const binary = await storage.get({ key: "all", at: linearizable });
      expect(empty.object?.value.byteLength).toBe(0);
      expect(Buffer.from(binary.object?.value ?? [])).toEqual(Buffer.from(all));
    });

    for (const match of ["EXACT", "NOT_OLDER_THAN"] as const) {
      storageTest(
        open,
        `${match} above the store's revision is HISTORY_CHANGED`,
        async (opened) => {
          const { storage } = opened;
          const revision = (await storage.currentRevision()) + 1_000_000;
          await expectFailure(
            storage.get({ key: "a", at: { match, revision } }),
            "HISTORY_CHANGED",
          );
          await expectFailure(
            storage.list({ prefix: "", limit: 0, at: { match, revision } }),
            "HISTORY_CHANGED",
          );
        },
      );

      for (const revision of [0, -1, 1.5, Number.NaN, 2 ** 53]) {
        storageTest(open, `${match} of revision ${revision} is INVALID_REQUEST`, async (opened) => {
          const at: RevisionRequirement = { match, revision };
          await expectFailure(opened.storage.get({ key: "a", at }), "INVALID_REQUEST");
          await expectFailure(opened.storage.list({ prefix: "", limit: 0, at }), "INVALID_REQUEST");
        });
      }
    }

    storageTest(open, "EXACT of compacted history is REVISION_TOO_OLD", async (opened) => {
      const { storage, write, compact } = opened;
      const first = await write([put("a", "1")]);
      await write([put("a", "2")]);
      const last = await write([put("a", "3")]);
      await compact(last);
      const old = storage.get({ key: "a", at: exact(first) });
      if (traits.keepsOwnHistory === true) {
        // It may still have the revision. It must not return another state.
        const response = await old.catch((error: Error) => error);
        if (response instanceof Error) await expectFailure(old, "REVISION_TOO_OLD");
        else expect(response.object && plainObject(response.object).value).toBe("1");
      } else {
        await expectFailure(old, "REVISION_TOO_OLD", { requested_revision: String(first) });
        await expectFailure(
          storage.list({ prefix: "", limit: 0, at: exact(first) }),
          "REVISION_TOO_OLD",
          { requested_revision: String(first) },
        );
      }
      const still = await storage.get({ key: "a", at: exact(last) });
      expect(still.object?.modRevision).toBe(last);
    });
  });

  describe("the current revision", () => {
    storageTest(open, "is that of the last write, and is not changed by a read", async (opened) => {
      const { storage, write } = opened;
      const revision = await write([put("a")]);
      expect(await storage.currentRevision()).toBe(revision);
      await storage.list({ prefix: "", limit: 0, at: linearizable });
      expect(await storage.currentRevision()).toBe(revision);
    });
  });

  describe("a call whose signal is aborted", () => {
    const signal = AbortSignal.abort(new Error("changed my mind"));
    const calls: [string, (opened: Opened) => Promise<unknown>][] = [
      ["get", ({ storage }) => storage.get({ key: "a", at: linearizable, signal })],
      ["list", ({ storage }) => storage.list({ prefix: "", limit: 0, at: linearizable, signal })],
      ["put", ({ storage }) => storage.put({ key: "a", value: bytes("1"), signal })],
      ["delete", ({ storage }) => storage.delete({ key: "b", signal })],
      ["currentRevision", ({ storage }) => storage.currentRevision(signal)],
      ["historyId", ({ storage }) => storage.historyId(signal)],
      ["renewHistory", ({ storage }) => storage.renewHistory("", signal)],
    ];
    for (const [name, call] of calls) {
      storageTest(
        open,
        `${name} rejects with the signal's reason, and changes nothing`,
        async (opened) => {
          const revision = await opened.write([put("b")]);
          await expect(call(opened)).rejects.toThrow("changed my mind");
          expect(await opened.storage.currentRevision()).toBe(revision);
        },
      );
    }
  });

  describe("after close", () => {
    test("every call rejects, a watch ends, and closing again has no effect", async () => {
      const opened = await open();
      const { storage } = opened;
      try {
        await storage.close();
        await storage.close();
        const calls = [
          storage.get({ key: "a", at: linearizable }),
          storage.list({ prefix: "", limit: 0, at: linearizable }),
          storage.put({ key: "a", value: bytes("1") }),
          storage.delete({ key: "a" }),
          storage.currentRevision(),
          storage.historyId(),
          storage.renewHistory(""),
        ];
        for (const call of calls) {
          await expect(call).rejects.toMatchObject({ name: "WatchFanoutError" });
        }
        storage.requestProgress();
      } finally {
        await opened.close();
      }
    });
  });
}
