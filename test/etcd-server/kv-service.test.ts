import { expect, test } from "vitest";
import { bytesField } from "../../src/etcd/wire/messages.ts";
import { KvService } from "../../src/etcd-server/kv/kv-service.ts";
import { ServedStore } from "../../src/etcd-server/protocol/served-store.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../fake-clock.ts";
import { parts } from "./compared-stores.ts";

test("A long Range has the revision of what it has read, and not of a write meanwhile", async () => {
  const clock = new FakeClock();
  const store = new MemoryStore({ clock });
  const value = Buffer.from("1");
  await store.update((draft) => {
    for (let i = 0; i < 10_001; i++) draft.put(`a${i}`, value, 0n);
  });
  const service = new KvService(new ServedStore(store), Buffer.from("history"));
  const request = Buffer.concat([
    bytesField(0x0a, Buffer.from("a")),
    bytesField(0x12, Buffer.from("b")),
  ]);
  const reading = service.range(request, new AbortController().signal);
  await store.update((draft) => draft.put("a", value, 0n));
  await clock.settle();
  expect(parts(await reading).revision).toBe(2);
  expect(store.revision).toBe(3);
});
