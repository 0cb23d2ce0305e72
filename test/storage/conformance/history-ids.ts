import { describe, expect } from "vitest";
import { plainObject } from "./model.ts";
import { bytes, expectFailure, linearizable, type Opened, put, storageTest } from "./opened.ts";

export function describeHistoryIds(open: () => Promise<Opened>): void {
  describe("the id of the history", () => {
    storageTest(open, "is not changed by writes", async ({ storage, write }) => {
      const id = await storage.historyId();
      expect(id).toMatch(/^[!-~]{1,128}$/);
      await write([put("a")]);
      await storage.put({ key: "b", value: bytes("1") });
      expect(await storage.historyId()).toBe(id);
    });

    storageTest(
      open,
      "is renewed for a caller that knows it, and returned to one that does not",
      async (opened) => {
        const { storage } = opened;
        const first = await storage.historyId();
        for (const known of ["", "another"]) {
          expect(await storage.renewHistory(known)).toBe(first);
        }
        const second = await storage.renewHistory(first);
        expect(second).not.toBe(first);
        expect(second).not.toBe("");
        expect(await storage.historyId()).toBe(second);
        // A later caller with the same finding gets the id that the first one wrote.
        expect(await storage.renewHistory(first)).toBe(second);
      },
    );

    storageTest(open, "is renewed once by many callers that know it", async ({ storage }) => {
      const first = await storage.historyId();
      const renewals = Array.from({ length: 5 }, () => storage.renewHistory(first));
      const ids = new Set(await Promise.all(renewals));
      expect(ids.size).toBe(1);
      expect(ids).not.toContain(first);
      expect(ids).toContain(await storage.historyId());
    });

    storageTest(open, "is not an object of the resource", async ({ storage }) => {
      await storage.renewHistory(await storage.historyId());
      const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
      expect(items).toEqual([]);
    });
  });

  describe("a write that names a history", () => {
    const writes: [string, (opened: Opened, historyId: string) => Promise<unknown>][] = [
      ["put", ({ storage }, historyId) => storage.put({ key: "a", value: bytes("2"), historyId })],
      ["delete", ({ storage }, historyId) => storage.delete({ key: "a", historyId })],
    ];
    for (const [name, call] of writes) {
      storageTest(open, `${name} is executed in that history`, async (opened) => {
        const { storage } = opened;
        const historyId = await storage.historyId();
        await storage.put({ key: "a", value: bytes("1") });
        await call(opened, historyId);
        const got = await storage.get({ key: "a", at: linearizable });
        const after = got.object && plainObject(got.object).value;
        expect(after).toBe(name === "put" ? "2" : undefined);
      });

      storageTest(open, `${name} is executed if the name is empty`, async (opened) => {
        const start = await opened.write([put("a", "1")]);
        await call(opened, "");
        expect(await opened.storage.currentRevision()).toBeGreaterThan(start);
      });

      const others: [string, (first: string) => string][] = [
        ["which was before this one", (first) => first],
        ["which never was", () => "another"],
      ];
      for (const [which, other] of others) {
        storageTest(
          open,
          `${name} is HISTORY_CHANGED in one ${which}, and changes nothing`,
          async (opened) => {
            const { storage } = opened;
            const first = await storage.historyId();
            const now = await storage.renewHistory(first);
            const { revision } = await storage.put({ key: "a", value: bytes("1") });
            await expectFailure(call(opened, other(first)), "HISTORY_CHANGED", {
              history_id: now,
            });
            expect(await storage.currentRevision()).toBe(revision);
            const got = await storage.get({ key: "a", at: linearizable });
            expect(got.object?.modRevision).toBe(revision);
          },
        );
      }
    }

    storageTest(open, "is REVISION_CONFLICT if only the object differs", async ({ storage }) => {
      const historyId = await storage.historyId();
      const { revision } = await storage.put({ key: "a", value: bytes("1") });
      const expectation = { key: "a", expectedModRevision: revision - 1, historyId };
      const metadata = { mod_revision: String(revision) };
      const put = storage.put({ ...expectation, value: bytes("2") });
      await expectFailure(put, "REVISION_CONFLICT", metadata);
      await expectFailure(storage.delete(expectation), "REVISION_CONFLICT", metadata);
      await expectFailure(storage.delete({ key: "b", historyId }), "OBJECT_NOT_FOUND");
      expect(await storage.currentRevision()).toBe(revision);
    });

    storageTest(open, "is HISTORY_CHANGED if both differ", async ({ storage }) => {
      const history_id = await storage.historyId();
      const { revision } = await storage.put({ key: "a", value: bytes("1") });
      const expectation = { key: "a", expectedModRevision: revision + 1, historyId: "another" };
      const put = storage.put({ ...expectation, value: bytes("2") });
      await expectFailure(put, "HISTORY_CHANGED", { history_id });
      await expectFailure(storage.delete(expectation), "HISTORY_CHANGED", { history_id });
    });
  });
}
