import { describe, expect, test } from "vitest";
import {
  MemoryStorage,
  type MemoryStorageOptions,
} from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import { FakeClock } from "../../fake-clock.ts";
import { bytes, expectFailure, linearizable, remove } from "../conformance/opened.ts";

const value = bytes("1");
const dayS = 24 * 60 * 60;

function open(options: Omit<MemoryStorageOptions, "clock"> = {}) {
  const clock = new FakeClock();
  return { clock, storage: new MemoryStorage({ clock, ...options }) };
}

function openShared() {
  const clock = new FakeClock();
  const store = new MemoryStore({ clock });
  return { clock, store, storage: new MemoryStorage({ store, resource: "things" }) };
}

async function keysOf(storage: MemoryStorage): Promise<string[]> {
  const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
  return items.map(({ key }) => key);
}

describe("in a MemoryStorage a time to live", () => {
  test.each([1, 60, 30 * dayS, 1000 * dayS, 9_000_000_000])(
    "of %i s expires after that, and not before",
    async (ttlSeconds) => {
      const { clock, storage } = open();
      await storage.put({ key: "a", value, ttlSeconds });
      clock.advance(ttlSeconds * 1000 - 1);
      expect(await keysOf(storage)).toEqual(["a"]);
      clock.advance(1);
      expect(await keysOf(storage)).toEqual([]);
      expect(await storage.currentRevision()).toBe(3);
      expect(clock.pendingTimers).toBe(0);
    },
  );

  test("is prolonged by a new put", async () => {
    const { clock, storage } = open();
    await storage.put({ key: "a", value, ttlSeconds: 10 });
    clock.advance(9_000);
    await storage.put({ key: "a", value, ttlSeconds: 10 });
    clock.advance(9_999);
    expect(await keysOf(storage)).toEqual(["a"]);
    clock.advance(1);
    expect(await keysOf(storage)).toEqual([]);
  });

  test("deletes a thousand keys in their order, at one revision", async () => {
    const { clock, storage } = open();
    const keys = Array.from({ length: 1000 }, (_, i) => `${i}`);
    const { lease } = (await storage.put({ key: "first", value, ttlSeconds: 1 })).object;
    for (const key of keys) await storage.put({ key, value, lease });
    const revision = await storage.currentRevision();
    const stream = storage.watch({
      scope: { prefix: "" },
      withPrevious: true,
      afterRevision: revision,
    });
    clock.advance(1000);
    const batch = stream.read();
    expect(batch?.revision).toBe(revision + 1);
    expect(batch?.events.map(({ object }) => object.key)).toEqual([...keys, "first"].sort());
  });

  test.each<[string, (storage: MemoryStorage) => Promise<unknown>]>([
    ["its object is put without one", (storage) => storage.put({ key: "a", value })],
    ["its object is deleted", (storage) => storage.delete({ key: "a" })],
    ["its object goes in a transaction", (storage) => storage.txn([remove("a")])],
    ["the store is closed", (storage) => storage.close()],
  ])("ends once %s", async (_, end) => {
    const { clock, storage } = open();
    await storage.put({ key: "a", value, ttlSeconds: 10 });
    expect(clock.pendingTimers).toBe(1);
    await end(storage);
    expect(clock.pendingTimers).toBe(0);
  });

  test("has no lease if the put fails", async () => {
    const { clock, storage } = open({ maxStateBytes: 100 });
    await expectFailure(
      storage.put({ key: "a", value: new Uint8Array(100), ttlSeconds: 10 }),
      "STORAGE_FULL",
    );
    expect(clock.pendingTimers).toBe(0);
  });

  test("makes a lease, to which a transaction can attach keys, too", async () => {
    const { clock, storage } = open();
    const { lease } = (await storage.put({ key: "a", value, ttlSeconds: 10 })).object;
    await storage.txn([{ type: "put", key: "b", value, lease }, remove("a")]);
    const unknown = [{ type: "put", key: "c", value, lease: lease ^ 1n }] as const;
    await expectFailure(storage.txn(unknown), "LEASE_NOT_FOUND");
    expect(await keysOf(storage)).toEqual(["b"]);
    clock.advance(10_000);
    expect(await keysOf(storage)).toEqual([]);
  });

  test.each<[string, (lease: bigint) => readonly Operation[]]>([
    ["before", (lease) => [remove("a"), { type: "put", key: "b", value, lease }]],
    ["after", (lease) => [{ type: "put", key: "b", value, lease }, remove("a")]],
  ])("does not end %s its only key has been replaced in a transaction", async (_, operations) => {
    const { clock, storage } = open();
    const { lease } = (await storage.put({ key: "a", value, ttlSeconds: 10 })).object;
    await storage.txn(operations(lease));
    expect(await keysOf(storage)).toEqual(["b"]);
    clock.advance(10_000);
    expect(await keysOf(storage)).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("leases", () => {
  test("end with their last key", async () => {
    const { storage, store } = openShared();
    const { lease } = (await storage.put({ key: "a", value, ttlSeconds: 10 })).object;
    await storage.put({ key: "b", value, lease });
    await storage.delete({ key: "a" });
    expect(store.leases.has(lease)).toBe(true);
    await storage.delete({ key: "b" });
    expect(store.leases.size).toBe(0);
  });

  test("that were granted by themselves are bounded", async () => {
    const { leases } = new MemoryStore({ clock: new FakeClock(), maxGrantedLeases: 100 });
    const granted = Array.from({ length: 100 }, () => leases.grant(60));
    const [first] = await Promise.all(granted);
    const refusal = { reason: "TOO_MANY_LEASES", metadata: { limit: "100" } };
    await expect(leases.grant(60)).rejects.toMatchObject(refusal);
    await leases.revoke(first?.lease ?? 0n);
    await leases.grant(60);
    leases.close();
    expect(leases.size).toBe(0);
  });

  test("that were granted by themselves last without keys, for their length after each renewal", async () => {
    const { clock, storage, store } = openShared();
    const { leases } = store;
    const { lease } = await leases.grant(10);
    clock.advance(9_999);
    expect(await leases.keepAlive([lease])).toEqual([10_000]);
    await storage.put({ key: "a", value, lease });
    await storage.delete({ key: "a" });
    await storage.put({ key: "b", value, lease });
    clock.advance(9_999);
    expect(await leases.timeToLive(lease, true)).toEqual({
      ...{ ttlMs: 1, grantedTtlSeconds: 10, others: 0 },
      objects: [{ resource: "things", key: "b" }],
    });
    expect(await keysOf(storage)).toEqual(["b"]);
    clock.advance(1);
    expect(await keysOf(storage)).toEqual([]);
    await expect(leases.timeToLive(lease, false)).rejects.toMatchObject({
      reason: "LEASE_NOT_FOUND",
    });
    expect(clock.pendingTimers).toBe(0);
  });

  test("have independent random ids of 63 bits", async () => {
    const { leases } = openShared().store;
    const granted = Array.from({ length: 1000 }, () => leases.grant(1));
    const ids = (await Promise.all(granted)).map(({ lease }) => lease);
    expect(new Set(ids).size).toBe(1000);
    for (const id of ids) expect(id > 0n && id < 2n ** 63n).toBe(true);
    expect(ids.some((id) => id > 2n ** 62n)).toBe(true);
  });
});
