import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Turns } from "../../src/base/turns.ts";
import { fieldsOf } from "../../src/etcd/wire/messages.ts";
import { KvService } from "../../src/etcd-server/kv/kv-service.ts";
import { ServedStore } from "../../src/etcd-server/protocol/served-store.ts";
import { bytesField, numberField } from "../../src/protobuf/fields.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../fake-clock.ts";
import { encode } from "../foreign/protobuf.ts";
import { openJournal, testFolder } from "../storage/journal/opened.ts";
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

test("A compaction is the same after a restart: what can be read, watched and compacted", async () => {
  const file = join(testFolder(), "data");
  const openStore = async () => {
    const journal = await openJournal({ file });
    const onFault = (error: Error): void => {
      throw error;
    };
    const store = await MemoryStore.open({ clock: systemClock, journal, onFault });
    onTestFinished(() => store.close());
    const served = new ServedStore(store);
    const service = new KvService(served, Buffer.from("history"));
    const rangeAt = (revision: number): Promise<Buffer> => {
      const request = Buffer.concat([
        bytesField(0x0a, Buffer.from("a")),
        numberField(0x20, revision),
      ]);
      return service.range(request, new AbortController().signal);
    };
    return { store, served, service, rangeAt };
  };
  const compacted = "etcdserver: mvcc: required revision has been compacted";
  const check = async ({
    store,
    served,
    service,
    rangeAt,
  }: Awaited<ReturnType<typeof openStore>>) => {
    expect(served.compacted).toBe(4);
    await expect(rangeAt(3)).rejects.toThrow(compacted);
    expect(parts(await rangeAt(4)).revision).toBe(6);
    await expect(service.compact(numberField(0x08, 4))).rejects.toThrow(compacted);
    // Its change can be watched.
    expect(store.oldest).toBe(3);
  };
  const before = await openStore();
  const value = Buffer.from("1");
  for (let i = 0; i < 5; i++) await before.store.update((draft) => draft.put("a", value, 0n));
  await before.service.compact(numberField(0x08, 4));
  await check(before);
  await before.store.close();
  const after = await openStore();
  await check(after);
  await after.service.compact(numberField(0x08, 6));
  expect(after.served.compacted).toBe(6);
});

/** A clock on which each look takes 0.1 ms, so that time slices end. */
class BusyClock extends FakeClock {
  #looks = 0;

  override now(): number {
    return super.now() + 0.1 * this.#looks++;
  }
}

/** A field of a transaction with a Range of all keys from "a" to "b". */
const rangeField = bytesField(
  0x12,
  bytesField(
    0x0a,
    Buffer.concat([bytesField(0x0a, Buffer.from("a")), bytesField(0x12, Buffer.from("b"))]),
  ),
);

const putField = bytesField(
  0x12,
  bytesField(
    0x12,
    Buffer.concat([bytesField(0x0a, Buffer.from("c")), bytesField(0x12, Buffer.from("1"))]),
  ),
);

test.each([
  ["reads", [], 2, 20],
  ["also writes", [putField], 3, 10],
])(
  "A long transaction that %s yields between slices, and has one state",
  async (_, others, revision, turns) => {
    const clock = new BusyClock();
    const store = new MemoryStore({ clock });
    const value = Buffer.from("1");
    await store.update((draft) => {
      for (let i = 0; i < 9_000; i++) draft.put(`a${i}`, value, 0n);
    });
    const service = new KvService(new ServedStore(store), Buffer.from("history"));
    const request = Buffer.concat([...Array.from({ length: 10 }, () => rangeField), ...others]);
    let isDone = false;
    const running = service.txn(request, new AbortController().signal).finally(() => {
      isDone = true;
    });
    let writes = 0;
    for (; !isDone; writes++) {
      await store.update((draft) => draft.delete(`a${writes}`));
      clock.runTurn();
      await nextTurn();
    }
    // Each of them was executed while the transaction was not done.
    expect(writes).toBeGreaterThan(turns);
    const { revision: found, rest } = parts(await running);
    expect(found).toBe(revision);
    const responses = [...fieldsOf(rest)].filter(({ tag }) => tag === 0x1a);
    const ranges = responses.slice(0, 10).map(({ content }) => content.toString("latin1"));
    expect(new Set(ranges).size).toBe(1);
    expect(responses).toHaveLength(10 + others.length);
    // All of the objects, whose deletions came later.
    const [range] = [...fieldsOf(responses[0]?.content ?? Buffer.alloc(0))];
    expect(
      [...fieldsOf(range?.content ?? Buffer.alloc(0))].filter(({ tag }) => tag === 0x12),
    ).toHaveLength(9_000);
  },
);

test("A transaction that is written, and whose response can't be made, is not answered as refused", async () => {
  const clock = new BusyClock();
  const store = new MemoryStore({ clock });
  const turns = new Turns(clock, 10);
  const service = new KvService(new ServedStore(store), Buffer.from("history"), turns);
  const { signal } = new AbortController();
  const key = bytesField(0x0a, Buffer.from("a"));
  const readOne = bytesField(0x12, bytesField(0x0a, key));
  const read = (count: number): void => {
    for (let i = 0; i < count; i++) service.range(key, signal).catch(() => {});
  };
  // The first ones take the rest of the turn, and the others wait behind the transaction.
  read(30);
  await nextTurn();
  const written = service.txn(Buffer.concat([readOne, putField]), signal);
  read(20);
  await expect(written).rejects.toMatchObject({
    ...{ code: 14, message: "etcdserver: request timed out" },
  });
  expect(store.revision).toBe(2);
});

/** A service with a large and a small object, and a transaction that reads the large one and changes a key. */
async function withLargeObject(clock: FakeClock) {
  const store = new MemoryStore({ clock });
  await store.update((draft) => {
    draft.put("large", Buffer.alloc(1024 ** 2), 0n);
    draft.put("small", Buffer.from("1"), 0n);
  });
  const service = new KvService(new ServedStore(store), Buffer.from("history"));
  const read = encode({ 1: encode({ 1: "large" }) });
  const put = encode({ 2: encode({ 1: "other", 2: "1" }) });
  const txn = (reads: number, signal: AbortSignal): Promise<Buffer> =>
    service.txn(encode({ 2: [...Array.from({ length: reads }, () => read), put] }), signal);
  return { service, txn };
}

test("Transactions hold no more than 1 GiB of objects for their responses, and large ones refuse no small ones", async () => {
  const clock = new BusyClock();
  const { service, txn } = await withLargeObject(clock);
  const leaving = new AbortController();
  const outcomes: string[] = [];
  const calls = Array.from({ length: 20 }, () =>
    txn(100, leaving.signal).catch((error: Error) => outcomes.push(error.message)),
  );
  await nextTurn();
  expect(outcomes).toEqual(Array.from({ length: 10 }, () => "etcdserver: too many requests"));
  const put = encode({ 1: "small", 2: "2", 4: true });
  expect((await service.put(put, new AbortController().signal)).includes("small")).toBe(true);
  leaving.abort(new Error("gone"));
  clock.runTurn();
  await Promise.all(calls);
  expect(outcomes.slice(10)).toEqual(Array.from({ length: 10 }, () => "gone"));
});

test("Large responses are encoded one after another, as there are copies of what each holds meanwhile", async () => {
  const clock = new BusyClock();
  const { txn } = await withLargeObject(clock);
  const { signal } = new AbortController();
  const turns: number[] = [];
  let turn = 0;
  const calls = Array.from({ length: 8 }, () => txn(8, signal).then(() => turns.push(turn)));
  for (; turns.length < 8; turn++) {
    await nextTurn();
    clock.runTurn();
  }
  await Promise.all(calls);
  expect(turns[0]).toBeGreaterThan(0);
  expect(turns[0]).toBeLessThan((turns[7] ?? 0) / 4);
});
