import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { fieldsOf } from "../../src/etcd/wire/messages.ts";
import { LeaseService } from "../../src/etcd-server/lease-service.ts";
import { ServedStore } from "../../src/etcd-server/protocol/served-store.ts";
import { numberField } from "../../src/protobuf/fields.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";

/** More than the stack has room for as arguments of a call. */
const count = 130_000;

function countOf(response: Buffer, tag: number): number {
  return [...fieldsOf(response)].filter((field) => field.tag === tag).length;
}

describe("etcd's Lease service", () => {
  test("has all keys of a lease, and all leases, however many", async () => {
    const store = new MemoryStore({ clock: systemClock, maxGrantedLeases: count + 1 });
    onTestFinished(() => store.close());
    const service = new LeaseService(new ServedStore(store));
    const { lease } = await store.leases.grant(60, undefined, 7n);
    const value = Buffer.alloc(0);
    await store.update((draft) => {
      for (let i = 0; i < count; i++) draft.put(`${i}`, value, lease);
    });
    const request = Buffer.concat([numberField(0x08, 7), numberField(0x10, 1)]);
    expect(countOf(await service.timeToLive(request), 0x2a)).toBe(count);
    await store.execute((draft) => {
      for (let i = 0; i < count; i++) draft.grant(60, true);
    });
    expect(countOf(await service.leases(), 0x12)).toBe(count + 1);
  });
});
