import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Compare, Operation, TransactRequest } from "../../../src/storage/store.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { bytes, linearizable } from "../conformance/opened.ts";
import {
  type OpenedStore,
  openEtcdStore,
  openFileStore,
  openMemoryStore,
  shownResults,
} from "./opened.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

function put(resource: string, key: string, value: string): Operation {
  return { type: "put", resource, key, value: bytes(value) };
}

function remove(resource: string, key: string): Operation {
  return { type: "delete", resource, key };
}

async function found(storage: Storage, key: string): Promise<string | undefined> {
  const { object } = await storage.get({ key, at: linearizable });
  return object && Buffer.from(object.value).toString();
}

async function keysOf(storage: Storage): Promise<string[]> {
  const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
  return items.map(({ key }) => key);
}

describe.each([
  ["etcd", async () => openEtcdStore(etcd)],
  ["the embedded store", async () => openMemoryStore()],
  ["the embedded store on a file", openFileStore],
])("a transaction on %s", (_, openStore) => {
  async function open(): Promise<OpenedStore> {
    const opened = await openStore();
    onTestFinished(() => opened.close());
    return opened;
  }

  test("writes all of its operations at one revision, over two resources", async () => {
    const { store, a, b } = await open();
    const first = (await a.put({ key: "gone", value: bytes("0") })).revision;
    await b.put({ key: "kept", value: bytes("1") });
    const result = await store.transact({
      compares: [
        { resource: "a", key: "gone", modRevision: first },
        { resource: "b", key: "new", exists: false },
        { resource: "b", key: "kept", value: bytes("1") },
        { resource: "b", key: "kept", exists: true },
      ],
      operations: [
        put("b", "new", "2"),
        remove("a", "gone"),
        put("b", "kept", "3"),
        remove("a", "absent"),
      ],
      returnPrevious: true,
    });
    const { revision, results } = result;
    expect(result.succeeded).toBe(true);
    expect(revision).toBe(first + 2);
    expect(result.revisionBefore).toBe(first + 1);
    expect(results.map(({ object }) => object?.version)).toEqual([1, undefined, 2, undefined]);
    expect(results.map(({ object }) => object?.createRevision)).toEqual([
      ...[revision, undefined, first + 1, undefined],
    ]);
    expect(
      results.map(({ previous }) => previous && Buffer.from(previous.value).toString()),
    ).toEqual([undefined, "0", "1", undefined]);
    expect(await keysOf(a)).toEqual([]);
    const { items } = await b.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map(({ key, modRevision }) => [key, modRevision])).toEqual([
      ["kept", revision],
      ["new", revision],
    ]);
  });

  test.each<[string, (revision: number) => Compare, boolean]>([
    ["exists", () => ({ resource: "a", key: "k", exists: true }), true],
    ["exists not", () => ({ resource: "a", key: "k", exists: false }), false],
    ["absent", () => ({ resource: "a", key: "x", exists: false }), true],
    ["mod", (modRevision) => ({ resource: "a", key: "k", modRevision }), true],
    ["other mod", (at) => ({ resource: "a", key: "k", modRevision: at - 1 }), false],
    ["mod 0 of none", () => ({ resource: "a", key: "x", modRevision: 0 }), true],
    ["mod 0", () => ({ resource: "a", key: "k", modRevision: 0 }), false],
    ["create", (at) => ({ resource: "a", key: "k", createRevision: at - 1 }), true],
    ["other create", (at) => ({ resource: "a", key: "k", createRevision: at }), false],
    ["value", () => ({ resource: "a", key: "k", value: bytes("v") }), true],
    ["other value", () => ({ resource: "a", key: "k", value: bytes("w") }), false],
    ["value of none", () => ({ resource: "a", key: "x", value: bytes("") }), false],
  ])("depends on the condition: %s", async (_name, compareOf, holds) => {
    const { store, a, b } = await open();
    await a.put({ key: "k", value: bytes("u") });
    const { revision } = await a.put({ key: "k", value: bytes("v") });
    const compare = compareOf(revision);
    const result = await store.transact({
      compares: [{ resource: "b", key: "none", exists: false }, compare],
      operations: [put("b", "new", "1")],
      returnCurrent: true,
    });
    expect(result.succeeded).toBe(holds);
    expect(await found(b, "new")).toBe(holds ? "1" : undefined);
    if (holds) return;
    expect(result).toMatchObject({ revision, revisionBefore: revision, results: [] });
    expect(result.compares.map(({ held }) => held)).toEqual([true, false]);
    expect(result.compares[1]?.object?.modRevision).toBe(
      compare.key === "k" ? revision : undefined,
    );
  });

  test("that only checks, or is only validated, writes nothing", async () => {
    const { store, a } = await open();
    const { revision } = await a.put({ key: "k", value: bytes("v") });
    const compares = [{ resource: "a", key: "k", modRevision: revision }];
    const checked = await store.transact({ compares, operations: [] });
    expect(checked).toMatchObject({ succeeded: true, revision, results: [] });
    const operations: Operation[] = [
      { type: "put", resource: "a", key: "k", value: bytes("w"), ttlSeconds: 60 },
    ];
    const validated = await store.transact({ compares, operations, validateOnly: true });
    expect(validated).toMatchObject({ succeeded: true, revision, results: [] });
    const wrong = [{ resource: "a", key: "k", exists: false }];
    const refused = await store.transact({ compares: wrong, operations, validateOnly: true });
    expect(refused).toMatchObject({ succeeded: false, revision });
    expect(await found(a, "k")).toBe("v");
  });

  test("shares a lease between operations with the same time to live", async () => {
    const { store } = await open();
    const { results } = await store.transact({
      compares: [],
      operations: [10, 20, 10, undefined].map((ttlSeconds, i) => ({
        ...{ type: "put", resource: i < 2 ? "a" : "b", key: `${i}`, value: bytes("") },
        ttlSeconds,
      })),
    });
    const leases = results.map(({ object }) => object?.lease);
    expect(leases[0]).toBe(leases[2]);
    expect(new Set(leases).size).toBe(3);
    expect(leases[3]).toBe(0n);
  });

  test.each<[string, string, Partial<TransactRequest>]>([
    ["nothing", "INVALID_REQUEST", {}],
    ["a key twice", "INVALID_REQUEST", { operations: [put("a", "k", "1"), remove("a", "k")] }],
    ["an empty key", "INVALID_REQUEST", { operations: [put("a", "", "1")] }],
    ["another store's resource", "INVALID_REQUEST", { operations: [put("c", "k", "1")] }],
    [
      "61 operations",
      "TRANSACTION_TOO_LARGE",
      { operations: Array.from({ length: 61 }, (_each, i) => put("a", `${i}`, "")) },
    ],
    [
      "121 compares",
      "TRANSACTION_TOO_LARGE",
      { compares: Array.from({ length: 121 }, () => ({ resource: "a", key: "k", exists: false })) },
    ],
    ["too many bytes", "VALUE_TOO_LARGE", { operations: [put("a", "k", "v".repeat(2 ** 21))] }],
    [
      "an unknown lease",
      "LEASE_NOT_FOUND",
      { operations: [{ type: "put", resource: "a", key: "k", value: bytes(""), lease: 77n }] },
    ],
    ["another history", "HISTORY_CHANGED", { operations: [put("a", "k", "1")], historyId: "x" }],
  ])("with %s is refused: %s", async (_name, reason, request) => {
    const { store, a } = await open();
    const transaction = { compares: [], operations: [], ...request };
    await expect(store.transact(transaction)).rejects.toMatchObject({ reason });
    expect(await keysOf(a)).toEqual([]);
  });

  test("may have 60 operations and 120 compares", async () => {
    const { store, a } = await open();
    const result = await store.transact({
      compares: Array.from({ length: 120 }, (_each, i) => ({
        ...{ resource: "b", key: `${i}`, exists: false },
      })),
      operations: Array.from({ length: 60 }, (_each, i) => put("a", `${i}`, "")),
      requestId: "caller.many",
      historyId: await a.historyId(),
    });
    expect(result.results.every(({ object }) => object?.modRevision === result.revision)).toBe(
      true,
    );
    expect(await keysOf(a)).toHaveLength(60);
  });

  test("leaves out objects before it above the bound of a response, and shows no larger state", async () => {
    const { store, a } = await open();
    const large = new Uint8Array(1024 ** 2);
    for (const key of ["1", "2", "3"]) await a.put({ key, value: large });
    const compares = ["1", "2", "3"].map((key) => ({ resource: "a", key, exists: false }));
    const checking = { compares, operations: [], returnCurrent: true };
    await expect(store.transact(checking)).rejects.toMatchObject({ reason: "LIST_TOO_LARGE" });
    expect((await store.transact({ ...checking, returnCurrent: false })).succeeded).toBe(false);
    const request = {
      compares: [],
      operations: ["1", "2", "3"].map((key) => put("a", key, "small")),
      returnPrevious: true,
      requestId: "caller.large",
    };
    const first = await store.transact(request);
    const shown = first.results.map(({ previous, previousLeftOut }) => [
      ...[previous?.value.length, previousLeftOut === true],
    ]);
    expect(shown).toEqual([
      [large.length, false],
      [large.length, false],
      [undefined, true],
    ]);
    expect(shownResults(await store.transact(request))).toEqual(shownResults(first));
  });

  test("with an id is applied once", async () => {
    const { store, a, b } = await open();
    await a.put({ key: "old", value: bytes("0") });
    const request = {
      compares: [{ resource: "b", key: "k", exists: false }],
      operations: [put("b", "k", "1"), remove("a", "old")],
      returnPrevious: true,
      requestId: "caller.1",
    };
    const first = await store.transact(request);
    await b.put({ key: "k", value: bytes("2") });
    const again = await store.transact(request);
    expect(again.succeeded).toBe(true);
    expect(again.revision).toBe(first.revision);
    expect(again.results.map(({ object }) => object?.version)).toEqual([1, undefined]);
    expect(again.results.map(({ previous }) => previous?.key)).toEqual([undefined, "old"]);
    expect(await found(b, "k")).toBe("2");
    const other = { ...request, operations: [put("b", "k", "3")] };
    await expect(store.transact(other)).rejects.toMatchObject({ reason: "REQUEST_ID_REUSED" });
    const another = await store.transact({ ...request, requestId: "caller.2" });
    expect(another.succeeded).toBe(false);
    // It left no trace.
    await b.delete({ key: "k" });
    const later = await store.transact({ ...request, requestId: "caller.2" });
    expect(later.succeeded).toBe(true);
    expect(await keysOf(a)).toEqual([]);
  });
});

describe.each([
  ["etcd", async () => openEtcdStore(etcd)],
  ["the embedded store", async () => openMemoryStore()],
  ["the embedded store on a file", openFileStore],
])("DeletePrefix on %s", (_, openStore) => {
  async function open(): Promise<OpenedStore> {
    const opened = await openStore();
    onTestFinished(() => opened.close());
    return opened;
  }

  async function fill({ store }: OpenedStore): Promise<number> {
    const keys = ["p/1", "p/2", "q"];
    const operations = ["a", "b"].flatMap((resource) => keys.map((key) => put(resource, key, "")));
    return (await store.transact({ compares: [], operations, requestId: "caller.0" })).revision;
  }

  test("deletes what begins with the prefix at one revision, and nothing else", async () => {
    const opened = await open();
    const { store, a, b } = opened;
    // From then on each transaction reads the history's id, too.
    expect(await a.historyId()).not.toBe("");
    const before = await fill(opened);
    const counted = await store.deletePrefix({ resource: "a", prefix: "p/", validateOnly: true });
    expect(counted).toMatchObject({ deleted: 2, revision: before });
    const result = await store.deletePrefix({ resource: "a", prefix: "p/" });
    expect(result).toMatchObject({ deleted: 2, revision: before + 1, revisionBefore: before });
    expect(await keysOf(a)).toEqual(["q"]);
    expect(await keysOf(b)).toEqual(["p/1", "p/2", "q"]);
    const none = await store.deletePrefix({ resource: "a", prefix: "p/" });
    expect(none).toMatchObject({ deleted: 0, revision: before + 1, revisionBefore: before + 1 });
  });

  test("of every key keeps the history and the ids of requests", async () => {
    const opened = await open();
    const { store, a } = opened;
    const historyId = await a.historyId();
    await fill(opened);
    const request = { resource: "a", prefix: "", requestId: "caller.3", historyId };
    const first = await store.deletePrefix(request);
    expect(first.deleted).toBe(3);
    await a.put({ key: "later", value: bytes("") });
    const again = await store.deletePrefix(request);
    expect(again).toMatchObject({ deleted: 3, revision: first.revision });
    expect(await keysOf(a)).toEqual(["later"]);
    expect(await a.historyId()).toBe(historyId);
    await fill(opened);
    expect(await keysOf(a)).toEqual(["later"]);
    const other = { ...request, prefix: "l" };
    await expect(store.deletePrefix(other)).rejects.toMatchObject({ reason: "REQUEST_ID_REUSED" });
  });

  test("of more objects than allowed deletes none", async () => {
    const { store, a } = await open();
    const operations = Array.from({ length: 21 }, (_each, i) => put("a", `${i}`, ""));
    await store.transact({ compares: [], operations });
    await expect(store.deletePrefix({ resource: "a", prefix: "" })).rejects.toMatchObject({
      reason: "TRANSACTION_TOO_LARGE",
      metadata: { limit: "20" },
    });
    expect(await keysOf(a)).toHaveLength(21);
    expect(await store.deletePrefix({ resource: "a", prefix: "1" })).toMatchObject({ deleted: 11 });
  });

  test("that was applied is answered as it was, also if more objects than allowed were put since", async () => {
    const { store, a } = await open();
    const request = { resource: "a", prefix: "", requestId: "caller.id" };
    await store.transact({ compares: [], operations: [put("a", "k", "")] });
    const first = await store.deletePrefix(request);
    const operations = Array.from({ length: 21 }, (_each, i) => put("a", `${i}`, ""));
    await store.transact({ compares: [], operations });
    const { deleted, revision } = first;
    expect(await store.deletePrefix(request)).toMatchObject({ deleted, revision });
    expect(await keysOf(a)).toHaveLength(21);
  });
});
