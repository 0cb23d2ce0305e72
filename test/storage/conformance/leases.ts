import { describe, expect } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { PutRequest, Storage } from "../../../src/storage/storage.ts";
import type { PlainEvent } from "./model.ts";
import { bytes, expectFailure, linearizable, type Opened, put, storageTest } from "./opened.ts";
import { StreamReader } from "./stream-reader.ts";

const value = bytes("1");

export function describeLeases(open: () => Promise<Opened>): void {
  describe("a put with a time to live", () => {
    storageTest(open, "has a lease of its own, which reads return", async ({ storage }) => {
      const { object, revision } = await storage.put({ key: "a", value, ttlSeconds: 600 });
      expect(object.lease).toBeGreaterThan(0n);
      expect(object.lease).toBeLessThan(2n ** 63n);
      const at = { match: "NOT_OLDER_THAN", revision } as const;
      expect((await storage.get({ key: "a", at })).object?.lease).toBe(object.lease);
    });

    storageTest(open, "has another lease each time", async ({ storage }) => {
      const leases = new Set<bigint>();
      for (const key of ["a", "a", "b"]) {
        leases.add((await storage.put({ key, value, ttlSeconds: 600 })).object.lease);
      }
      expect(leases.size).toBe(3);
    });

    storageTest(
      open,
      "deletes all keys of its lease when it expires, at one revision, and nothing else",
      async ({ storage }) => {
        const { lease, deleted } = await expiredLease(storage, 1);
        expect(deleted.map(({ key, object }) => [key, object?.lease])).toEqual([
          ["a", lease],
          ["b", lease],
          ["c", lease],
        ]);
        expect(new Set(deleted.map(({ revision }) => revision)).size).toBe(1);
        const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
        expect(items.map(({ key }) => key)).toEqual(["free", "freed", "moved"]);
        const late = storage.put({ key: "a", value, lease });
        await expectFailure(late, "LEASE_NOT_FOUND", { lease: String(lease) });
      },
    );

    storageTest(open, "that conflicts changes nothing", async ({ storage, write }) => {
      const start = await write([put("a", "0")]);
      const call = storage.put({ key: "a", value, ttlSeconds: 600, expectedModRevision: 0 });
      await expectFailure(call, "REVISION_CONFLICT", { mod_revision: String(start) });
      expect(await storage.currentRevision()).toBe(start);
    });
  });

  describe("a put under a lease", () => {
    storageTest(open, "detaches the key with the next put without a lease", async ({ storage }) => {
      const { lease } = (await storage.put({ key: "a", value, ttlSeconds: 600 })).object;
      expect((await storage.put({ key: "b", value, lease })).object.lease).toBe(lease);
      expect((await storage.put({ key: "a", value })).object.lease).toBe(0n);
      expect((await storage.put({ key: "b", value, lease: 0n })).object.lease).toBe(0n);
      const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
      expect(items.map((object) => object.lease)).toEqual([0n, 0n]);
    });
  });

  describe("a put is INVALID_REQUEST", () => {
    const invalid: [string, Partial<PutRequest>][] = [
      ["under a lease and with a time to live", { lease: 1n, ttlSeconds: 1 }],
      ["with a time to live of 0", { ttlSeconds: 0 }],
      ["with a negative time to live", { ttlSeconds: -1 }],
      ["with a time to live of part of a second", { ttlSeconds: 0.5 }],
      ["with a time to live of centuries", { ttlSeconds: 9_000_000_001 }],
      ["with a time to live that is no number", { ttlSeconds: Number.NaN }],
      ["under a negative lease", { lease: -1n }],
      ["under a lease of more than 63 bits", { lease: 2n ** 63n }],
    ];
    for (const [name, part] of invalid) {
      storageTest(open, name, async ({ storage }) => {
        const start = await storage.currentRevision();
        await expectFailure(storage.put({ key: "a", value, ...part }), "INVALID_REQUEST");
        expect(await storage.currentRevision()).toBe(start);
      });
    }
  });
}

/**
 * Puts a, b and c under one lease, detaches others from it, and waits until it has expired: resolves to what was deleted.
 * A lease that expired before all of that was done, as on a busy machine, proves nothing: the next one lives twice as long.
 */
async function expiredLease(
  storage: Storage,
  ttlSeconds: number,
): Promise<{ lease: bigint; deleted: PlainEvent[] }> {
  const afterRevision = await storage.currentRevision();
  const watch = { scope: { prefix: "" }, withPrevious: true, afterRevision };
  const reader = new StreamReader(storage, watch);
  const { lease } = (await storage.put({ key: "b", value, ttlSeconds })).object;
  try {
    for (const key of ["c", "a", "freed", "moved"]) await storage.put({ key, value, lease });
  } catch (error) {
    if (!(error instanceof WatchFanoutError && error.reason === "LEASE_NOT_FOUND")) throw error;
    reader.stream.close();
    return expiredLease(storage, ttlSeconds * 2);
  }
  await storage.put({ key: "freed", value });
  await storage.put({ key: "moved", value, ttlSeconds: 600 });
  const { revision } = await storage.put({ key: "free", value });
  const deleted = () => reader.events.filter(({ type }) => type === "DELETED");
  while (deleted().length === 0) {
    if ((await reader.next()) === undefined) throw reader.stream.ended;
  }
  reader.stream.close();
  if (deleted().every((event) => event.revision > revision)) return { lease, deleted: deleted() };
  return expiredLease(storage, ttlSeconds * 2);
}
