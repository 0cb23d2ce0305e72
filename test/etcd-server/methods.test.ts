import type { IncomingHttpHeaders } from "node:http2";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Upstream } from "../../src/etcd/client/upstream.ts";
import { askUpstream } from "../../src/etcd/client/upstream-call.ts";
import { embeddedEndpoint } from "../../src/etcd/client/upstream-connection.ts";
import { etcdMethods } from "../../src/etcd/wire/methods.ts";
import { decode } from "../../src/etcd-server/protocol/requests.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { frameOf } from "../../src/wire/encode.ts";
import { type RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { TestJournal } from "../storage/memory/journaled/test-journal.ts";
import { servedOfFile, serveStore } from "./served-store.ts";

const servedOf = servedOfFile();

async function call(client: RawGrpc, method: string, request: Buffer = Buffer.of()) {
  const response = await client.unary(`/etcdserverpb.${method}`, request);
  const message = response.body.length === 0 ? undefined : new Message(response.body.subarray(5));
  return { status: statusOf(response), message };
}

describe("The embedded store's etcd API", () => {
  test("says of every method that it has not what to use", async () => {
    const { client } = await servedOf();
    const refused: string[] = [];
    for (const path of etcdMethods.keys()) {
      if (path.endsWith("/Watch") || path.endsWith("KeepAlive")) continue;
      const { code, message } = statusOf(await client.unary(path, Buffer.of()));
      if (code !== "12") continue;
      refused.push(path.slice(1));
      expect(message).toMatch(/^The embedded store does not implement \S+\. .{10,}\.$/);
    }
    expect(refused).toContain("etcdserverpb.Maintenance/Snapshot");
    expect(refused).not.toContain("etcdserverpb.KV/Txn");
    expect(refused.length).toBe(etcdMethods.size - 19);
    const snapshot = await call(client, "Maintenance/Snapshot");
    expect(snapshot.status.message).toContain("watch-fanout backup");
  });

  test("logs nothing of a request that can't be read, as clients could fill the log with them", () => {
    // A flag of nine bytes is no fault of its wire type, but the decoder can't read it.
    const unreadable = encode({ 1: "a", 4: 2n ** 63n - 1n });
    let thrown: unknown;
    try {
      decode.put(unreadable);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toMatchObject({ code: 13 });
    expect((thrown as Error).cause).toBeUndefined();
    expect(String(thrown)).toContain("error unmarshalling request");
  });

  test("has one member, which is the leader, with the version of etcd that it behaves as", async () => {
    const { client } = await servedOf();
    const { message: status } = await call(client, "Maintenance/Status");
    const member = status?.message(1)?.integer(2);
    expect(member).not.toBe(0n);
    expect(status?.text(2)).toBe("3.6.0");
    expect(status?.integer(4)).toBe(member);
    const { message: list } = await call(client, "Cluster/MemberList");
    expect(list?.messages(2).map((each) => [each.integer(1), each.text(4)])).toEqual([
      [member, "http://127.0.0.1:2379"],
    ]);
  });

  test("has the same ids as long as its history is the same, and others then", async () => {
    const { client, store } = await servedOf();
    const idsOf = async () => {
      const { message } = await call(client, "Maintenance/Status");
      return [1, 2].map((field) => message?.message(1)?.integer(field));
    };
    const before = await idsOf();
    await store.update((draft) => draft.put("a", Buffer.from("1"), 0n));
    expect(await idsOf()).toEqual(before);
    await store.renewHistory(store.historyId);
    const [cluster, member] = await idsOf();
    expect(cluster).not.toBe(before[0]);
    expect(member).not.toBe(before[1]);
  });

  test("has an alarm while it is full, and refuses writes as etcd", async () => {
    const full = await serveStore({ maxStateBytes: 100_000 });
    try {
      const alarms = async () => (await call(full.client, "Maintenance/Alarm")).message?.all(2);
      expect(await alarms()).toEqual([]);
      const request = encode({ 1: "a", 2: Buffer.alloc(200_000) });
      const { status } = await call(full.client, "KV/Put", request);
      expect(status).toEqual({ code: "8", message: "etcdserver: mvcc: database space exceeded" });
      expect(await alarms()).toHaveLength(1);
    } finally {
      await full.close();
    }
  });

  test("refuses a transaction whose response would be very large", async () => {
    const large = await serveStore();
    try {
      for (const key of ["a", "b"]) {
        await large.store.update((draft) => draft.put(key, Buffer.alloc(1024 ** 2), 0n));
      }
      const { revision } = large.store;
      const all = { 1: encode({ 1: Buffer.of(0), 2: Buffer.of(0) }) };
      const past = { 1: encode({ 1: Buffer.of(0), 2: Buffer.of(0), 4: revision }) };
      const refused = { code: "8", message: "etcdserver: too many requests" };
      const ofRanges = (count: number, range: typeof all) =>
        call(
          large.client,
          "KV/Txn",
          encode({ 2: Array.from({ length: count }, () => encode(range)) }),
        );
      expect((await ofRanges(64, all)).status).toEqual(refused);
      expect((await ofRanges(64, past)).status).toEqual(refused);
      const onlyKeys = { 1: encode({ 1: Buffer.of(0), 2: Buffer.of(0), 8: 1 }) };
      expect((await ofRanges(64, onlyKeys)).status.code).toBe("0");
      expect((await ofRanges(4, all)).status.code).toBe("0");
    } finally {
      await large.close();
    }
  });

  test("refuses requests above etcd's bounds", async () => {
    const { client } = await servedOf();
    const large = encode({ 1: "a", 2: Buffer.alloc(1.6 * 1024 ** 2) });
    expect((await call(client, "KV/Put", large)).status).toEqual({
      ...{ code: "3", message: "etcdserver: request is too large" },
    });
    const tooLarge = encode({ 1: "a", 2: Buffer.alloc(3 * 1024 ** 2) });
    expect((await call(client, "KV/Put", tooLarge)).status).toEqual({
      code: "8",
      message: "grpc: received message larger than max (3145736 vs. 2097152)",
    });
    const operations = Array.from({ length: 129 }, () => encode({ 1: encode({ 1: "a" }) }));
    expect((await call(client, "KV/Txn", encode({ 2: operations }))).status).toEqual({
      ...{ code: "3", message: "etcdserver: too many operations in txn request" },
    });
  });

  test("refuses a transaction that reads more than 100,000 objects", async () => {
    const many = await serveStore();
    try {
      await many.store.update((draft) => {
        for (let i = 0; i <= 100_000; i++) draft.put(String(i), Buffer.of(), 0n);
      });
      const all = { 1: Buffer.of(0), 2: Buffer.of(0) };
      const range = encode({ ...all, 9: true });
      const alone = await call(many.client, "KV/Range", range);
      expect(alone.message?.number(4)).toBe(100_001);
      const txn = encode({ 2: encode({ 1: range }) });
      expect((await call(many.client, "KV/Txn", txn)).status.code).toBe("3");
      const remove = await call(many.client, "KV/DeleteRange", encode(all));
      expect(remove.status.code).toBe("3");
      expect(many.store.revision).toBe(2);
    } finally {
      await many.close();
    }
  });

  test("refuses a write as etcd while too many wait for the disk", async () => {
    const journal = new TestJournal();
    const onFault = (error: Error): never => {
      throw error;
    };
    const store = await MemoryStore.open({ clock: systemClock, journal, onFault });
    const slow = await serveStore({}, undefined, store);
    const large = Buffer.alloc(1024 ** 2);
    const applied = Array.from({ length: 32 }, (_, i) =>
      store.update((draft) => draft.put(String(i), large, 0n)),
    );
    const waiting = new AbortController();
    const { signal } = waiting;
    const writes = Array.from({ length: 10_000 }, () => store.update(() => {}, { signal }));
    const { status } = await call(slow.client, "KV/Put", encode({ 1: "a", 2: "v" }));
    waiting.abort();
    await Promise.allSettled(writes);
    journal.isAutomatic = true;
    journal.keep();
    await Promise.all(applied);
    await slow.close();
    expect(status).toEqual({ code: "8", message: "etcdserver: too many requests" });
  });

  test("gets no further calls once it is closed: they fail as without a connection", async () => {
    const closed = await serveStore();
    const upstream = new Upstream({
      ...{ endpoints: [embeddedEndpoint], certificates: undefined, connect: closed.server.connect },
      ...{ clock: systemClock, logger: pino({ level: "silent" }) },
    });
    const ask = () =>
      askUpstream(upstream, "/etcdserverpb.KV/Range", {}, encode({ 1: "a" }), systemClock);
    expect((await ask()).code).toBe(0);
    await closed.close();
    expect(await ask()).toMatchObject({ code: 14, message: undefined });
    expect(upstream.outage?.why).toBe("the store is closed");
  });

  test("logs no failure of a call that ends with the server", async () => {
    const logged: string[] = [];
    const logger = pino({}, { write: (line) => void logged.push(line) });
    const closing = await serveStore({}, undefined, undefined, logger);
    await closing.store.update((draft) => {
      for (let i = 0; i < 50_000; i++) draft.put(String(i), Buffer.of(), 0n);
    });
    const reading = closing.connection.request({ ":path": "/etcdserverpb.KV/Range" });
    const all = { 1: Buffer.of(0), 2: Buffer.of(0) };
    reading.write(Buffer.concat(frameOf(encode({ ...all, 9: true }))));
    await nextTurn();
    const ended = new Promise<IncomingHttpHeaders>((resolve) => reading.on("response", resolve));
    await closing.close();
    expect(await ended).toMatchObject({ "grpc-status": "14" });
    for (let i = 0; i < 10; i++) await nextTurn();
    expect(logged).toEqual([]);
  });

  test("hashes equal states equally, and others not", async () => {
    const [one, other] = [await serveStore(), await serveStore()];
    try {
      const hashOf = async (client: RawGrpc, revision: number) =>
        (await call(client, "Maintenance/HashKV", encode({ 1: revision }))).message?.integer(2);
      for (const { client } of [one, other]) {
        for (const key of ["a", "b"]) await call(client, "KV/Put", encode({ 1: key, 2: "v" }));
      }
      expect(await hashOf(one.client, 3)).toBe(await hashOf(other.client, 3));
      await call(one.client, "KV/Put", encode({ 1: "a", 2: "w" }));
      expect(await hashOf(one.client, 3)).toBe(await hashOf(other.client, 3));
      expect(await hashOf(one.client, 0)).not.toBe(await hashOf(other.client, 0));
    } finally {
      await one.close();
      await other.close();
    }
  });
});
