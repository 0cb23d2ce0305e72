import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { upstreamUnavailable } from "../../../src/base/errors.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../../src/storage/etcd/etcd-store.ts";
import type { Operation, TransactRequest } from "../../../src/storage/store.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { bytes, linearizable } from "../conformance/opened.ts";
import { clientOf, newPrefix, Source } from "../etcd/source.ts";
import { shownResults } from "./opened.ts";

let etcd: Etcd;
let source: Source;

beforeAll(async () => {
  etcd = await startEtcd();
  source = new Source(etcd);
});

afterAll(() => etcd.stop());

/** One process: a client of its own, with these resources. */
function replica(prefixes: Readonly<Record<string, string>>, historyKey = `${newPrefix()}history`) {
  const client = clientOf(etcd, { historyKey, clock: systemClock });
  const store = new EtcdStore(client, { prefixes: new Map(Object.entries(prefixes)) });
  const storage = (name: string) => new EtcdStorage(client, { prefix: prefixes[name] ?? "" });
  onTestFinished(() => client.close());
  return { client, store, storage };
}

function put(key: string, value: string, more: object = {}): Operation {
  return { type: "put", resource: "a", key, value: bytes(value), ...more };
}

async function leases(): Promise<number> {
  const { leases: all = [] } = (await source.call("lease/leases", {})) as { leases?: unknown[] };
  return all.length;
}

describe("DeletePrefix of etcd", () => {
  test("of a prefix deletes keys that are not UTF-8 with it, but not the prefix of the resource", async () => {
    const prefix = newPrefix();
    const { store } = replica({ a: prefix });
    for (const key of [[0xff], [], [0x61]])
      await source.putBytes(Buffer.concat([Buffer.from(prefix), Buffer.from(key)]));
    expect((await store.deletePrefix({ resource: "a", prefix: "" })).deleted).toBe(2);
    const left = await source.call("kv/range", { key: Buffer.from(prefix).toString("base64") });
    expect(left).toMatchObject({ count: "1" });
  });
});

describe("a transaction of etcd", () => {
  test("grants no further leases once its caller has gone", async () => {
    const { client, store } = replica({ a: newPrefix() });
    const gone = new AbortController();
    let granted = 0;
    const grant = client.leases.grant.bind(client.leases);
    client.leases.grant = async (ttlSeconds) => {
      granted++;
      gone.abort(new Error("gone"));
      return grant(ttlSeconds);
    };
    const revoked = Promise.withResolvers<void>();
    client.leases.revoke = async () => {
      revoked.resolve();
      return true;
    };
    const operations = [1, 2, 3].map((i) => put(String(i), "", { ttlSeconds: 100 + i }));
    const { signal } = gone;
    await expect(store.transact({ compares: [], operations, signal })).rejects.toThrow("gone");
    await revoked.promise;
    expect(granted).toBe(1);
  });

  test("refuses one key that two resources name", async () => {
    const prefix = newPrefix();
    const { store } = replica({ a: prefix, inner: `${prefix}x/` });
    const operations: Operation[] = [
      put("x/k", "1"),
      { type: "delete", resource: "inner", key: "k" },
    ];
    await expect(store.transact({ compares: [], operations })).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
      message: expect.stringContaining("which is the same key as"),
    });
    const compares = [{ resource: "inner", key: "k", exists: false }];
    const { revision } = await store.transact({ compares, operations: [put("x/k", "1")] });
    const now = [{ resource: "inner", key: "k", modRevision: revision }];
    expect((await store.transact({ compares: now, operations: [] })).succeeded).toBe(true);
  });

  test("with an id is answered by another replica, and after a restart, as by the first", async () => {
    const prefix = newPrefix();
    const request: TransactRequest = {
      compares: [{ resource: "a", key: "k", exists: false }],
      operations: [put("k", "1", { ttlSeconds: 600 })],
      requestId: "caller.id",
    };
    const key = `${prefix}history`;
    const first = await replica({ a: prefix }, key).store.transact(request);
    const before = await leases();
    const again = await replica({ a: prefix }, key).store.transact(request);
    const { succeeded, revision, historyId } = first;
    expect(again).toMatchObject({ succeeded, revision, historyId, revisionBefore: revision });
    expect(shownResults(again)).toEqual(shownResults(first));
    // The lease of the repetition was revoked; one is shared by its replica's requests.
    expect(await leases()).toBe(before + 1);
    const another = { ...request, requestId: "caller2.id" };
    expect((await replica({ a: prefix }, key).store.transact(another)).succeeded).toBe(false);
  });

  test("that is sent many times at once with one id is applied once", async () => {
    const prefix = newPrefix();
    const { store, storage } = replica({ a: prefix });
    const request = { compares: [], operations: [put("k", "1")], requestId: "caller.many" };
    const before = await leases();
    const results = await Promise.all(Array.from({ length: 20 }, () => store.transact(request)));
    expect(new Set(results.map(({ revision }) => revision)).size).toBe(1);
    const { object } = await storage("a").get({ key: "k", at: linearizable });
    expect(object?.version).toBe(1);
    expect(await leases()).toBe(before + 1);
  });

  test("leaves no lease if nothing was written", async () => {
    const prefix = newPrefix();
    const { store } = replica({ a: prefix });
    const operations = [put("k", "1", { ttlSeconds: 600 }), put("l", "1", { ttlSeconds: 700 })];
    const before = await leases();
    const compares = [{ resource: "a", key: "k", exists: true }];
    expect((await store.transact({ compares, operations })).succeeded).toBe(false);
    const historyId = "another";
    await expect(store.transact({ compares: [], operations, historyId })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
    expect(await leases()).toBe(before);
    await store.transact({ compares: [], operations });
    expect(await leases()).toBe(before + 2);
  });

  test("shows what remembers it to no resource, and no resource changes that", async () => {
    const historyKey = `${newPrefix()}history`;
    const { store, storage } = replica({ a: "", below: `${historyKey}-requests/` }, historyKey);
    const all = storage("a");
    const key = newPrefix().slice(1);
    const { revision } = await all.put({ key, value: bytes("") });
    const stream = all.watch({
      scope: { prefix: "" },
      withPrevious: true,
      afterRevision: revision,
    });
    onTestFinished(() => stream.close());
    await store.transact({ compares: [], operations: [put(key, "1")], requestId: "caller.1" });
    const last = await all.put({ key, value: bytes("2") });
    const seen: string[] = [];
    while (seen.length < 2) {
      const batch = stream.read();
      for (const { object } of batch?.events ?? []) seen.push(object.key);
      if (batch === undefined) await new Promise<void>((resolve) => stream.onReadable(resolve));
    }
    expect(seen).toEqual([key, key]);
    const { items } = await all.list({ prefix: historyKey, limit: 0, at: linearizable });
    expect(items).toEqual([]);
    expect((await storage("below").list({ prefix: "", limit: 0, at: linearizable })).items).toEqual(
      [],
    );
    const scope = { prefix: historyKey };
    const known = { scope, revision: last.revision, after: 0, limit: 10 };
    expect(await all.writtenAfter(known)).toEqual({ written: [], total: 0 });
    const marker = await source.call("kv/range", {
      key: Buffer.from(`${historyKey}-requests/`).toString("base64"),
      range_end: Buffer.from(`${historyKey}-requests0`).toString("base64"),
    });
    const [{ key: base64 }] = (marker as { kvs: [{ key: string }] }).kvs;
    const name = Buffer.from(base64, "base64").toString();
    expect((await all.get({ key: name, at: linearizable })).object).toBeUndefined();
    for (const operation of [put(name, ""), { ...put(name, ""), type: "delete" } as Operation]) {
      await expect(store.transact({ compares: [], operations: [operation] })).rejects.toMatchObject(
        { reason: "INVALID_REQUEST" },
      );
    }
    await expect(all.delete({ key: name })).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
    const removed = await store.deletePrefix({ resource: "a", prefix: historyKey });
    expect(removed.deleted).toBe(0);
  });

  test("with an id whose result is compacted is not repeated", async () => {
    const prefix = newPrefix();
    const { store } = replica({ a: prefix });
    const request = { compares: [], operations: [put("k", "1")], requestId: "caller.old" };
    const { revision } = await store.transact(request);
    await store.transact({ compares: [], operations: [put("k", "2")] });
    await source.compact(revision + 1);
    await expect(store.transact(request)).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
      message: expect.stringContaining(`at revision ${revision}`),
    });
  });

  test("that was applied keeps its lease if what it replaced can't be read", async () => {
    const { client, store, storage } = replica({ a: newPrefix() });
    const { range } = client;
    client.range = async () => {
      throw upstreamUnavailable("etcd is away.");
    };
    const operations = ["1", "2", "3"].map((key) => put(key, "", { ttlSeconds: 600 }));
    await expect(
      store.transact({ compares: [], operations, returnPrevious: true }),
    ).rejects.toMatchObject({
      reason: "OUTCOME_UNKNOWN",
      message: expect.stringMatching(/was applied at revision \d+, .* etcd is away\./),
    });
    client.range = range;
    const { items } = await storage("a").list({ prefix: "", limit: 0, at: linearizable });
    expect(items).toHaveLength(3);
  });

  test("whose compares found what is compacted before it is read says that nothing was written", async () => {
    const { client, store } = replica({ a: newPrefix() });
    await store.transact({ compares: [], operations: [put("k", "1")] });
    const range = client.range.bind(client);
    client.range = async (request, signal) => {
      const next = await store.transact({ compares: [], operations: [put("k", "2")] });
      await source.compact(next.revision);
      return range(request, signal);
    };
    const compares = ["k", "l", "m"].map((key) => ({ resource: "a", key, exists: false }));
    const request = { compares, operations: [put("k", "3")], returnCurrent: true };
    // REVISION_TOO_OLD would say that it was applied.
    await expect(store.transact(request)).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining("Nothing was written"),
    });
  });

  test("reads no further values that it replaced once they are above the bound of a response", async () => {
    const { client, store, storage } = replica({ a: newPrefix() });
    const keys = ["1", "2", "3", "4", "5"];
    for (const key of keys) await storage("a").put({ key, value: Buffer.alloc(1024 ** 2) });
    const { range } = client;
    let values = 0;
    client.range = (request, signal) => {
      if (request.keys_only !== true) values++;
      return range.call(client, request, signal);
    };
    const operations = [...keys, "absent"].map((key) => put(key, "small"));
    const { results } = await store.transact({ compares: [], operations, returnPrevious: true });
    const leftOut = results.map(({ previousLeftOut }) => previousLeftOut === true);
    expect(leftOut).toEqual([false, false, true, true, true, false]);
    expect(values).toBe(3);
  });

  test("above a smaller limit of etcd is TRANSACTION_TOO_LARGE", async () => {
    const small = await startEtcd({ args: ["--max-txn-ops=16"] });
    onTestFinished(() => small.stop());
    const client = clientOf(small);
    onTestFinished(() => client.close());
    const store = new EtcdStore(client, { prefixes: new Map([["a", "a/"]]) });
    const operations = Array.from({ length: 10 }, (_, i) => put(`${i}`, ""));
    await expect(store.transact({ compares: [], operations })).rejects.toMatchObject({
      reason: "TRANSACTION_TOO_LARGE",
    });
  });

  test("shares the lease of its id with at most 1,000 others", async () => {
    const { client, store } = replica({ a: newPrefix() });
    let granted = 0;
    const grant = client.leases.grant.bind(client.leases);
    client.leases.grant = (ttlSeconds) => {
      granted++;
      return grant(ttlSeconds);
    };
    const transact = (requestId: string) =>
      store.transact({ compares: [], operations: [put("k", "1")], requestId });
    for (let i = 0; i < 10; i++) {
      await Promise.all(Array.from({ length: 100 }, (_, j) => transact(`caller.${i}.${j}`)));
    }
    expect(granted).toBe(1);
    await transact("caller.1001");
    expect(granted).toBe(2);
  });

  test("renews the lease of the ids if etcd has lost it", async () => {
    const { store } = replica({ a: newPrefix() });
    const request = { compares: [], operations: [put("k", "1")], requestId: "caller.1" };
    await store.transact(request);
    const { leases: all } = (await source.call("lease/leases", {})) as { leases: { ID: string }[] };
    for (const { ID } of all) await source.call("lease/revoke", { ID });
    const next = await store.transact({ ...request, requestId: "caller.2" });
    expect(next.succeeded).toBe(true);
    const unknown = { ...request, operations: [put("k", "1", { lease: 77n })] };
    const before = await leases();
    await expect(store.transact({ ...unknown, requestId: "caller.3" })).rejects.toMatchObject({
      reason: "LEASE_NOT_FOUND",
      metadata: { lease: "77" },
    });
    // That one was not missing, so no other is granted.
    expect(await leases()).toBe(before);
  });
});
