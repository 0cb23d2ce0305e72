import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import { startReady } from "../../cacher/ready.ts";
import { SlowStorage } from "../../contract/slow-storage.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { openEtcdStore, openMemoryStore } from "../../storage/store/opened.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { serveAdded, serveThings } from "../served.ts";
import { serveStore, transactingBy } from "./transacting.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

const value = (text: string | number): Buffer => Buffer.from(`${text}`);

describe.each([
  ["etcd", () => openEtcdStore(etcd)],
  ["the embedded store", () => openMemoryStore(systemClock)],
])("a service over %s", (_, open) => {
  test("transacts over resources, and caches follow", async () => {
    const { client, transact } = await serveStore(open());
    const { object: old } = await client.put({ resource: "a", key: "old", value: value(1) });
    const { succeeded, revision, results, history_id } = await transact({
      compares: [
        { resource: "a", key: "old", mod_revision: old?.mod_revision ?? "" },
        { resource: "b", key: "new", exists: false },
      ],
      operations: [
        { resource: "b", key: "new", put: { value: value(2) } },
        { resource: "a", key: "old", delete: {} },
      ],
      return_previous: true,
    });
    expect(succeeded).toBe(true);
    expect(results).toMatchObject([
      {
        object: expect.objectContaining({
          ...{ key: "new", value: value(2), version: "1", mod_revision: revision },
        }),
        previous: null,
      },
      { object: null, previous: old },
    ]);
    const read = await client.get({ resource: "b", key: "new" });
    expect(read).toMatchObject({ history_id, object: results[0]?.object });
    await expect(client.get({ resource: "a", key: "old" })).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
    });
  });

  test("returns what compares found, if asked", async () => {
    const { client, transact } = await serveStore(open());
    const { object } = await client.put({ resource: "a", key: "k", value: value(1) });
    const request = {
      compares: [
        { resource: "a", key: "k", value: value(2) },
        { resource: "b", key: "none", exists: false },
      ],
      operations: [{ resource: "b", key: "none", put: {} }],
    };
    expect(await transact(request)).toMatchObject({ succeeded: false, results: [], compares: [] });
    expect(await transact({ ...request, return_current: true })).toMatchObject({
      succeeded: false,
      compares: [
        { held: false, object },
        { held: true, object: null },
      ],
    });
  });

  test("gets objects of several resources at one revision while sums move between them", async () => {
    const { client, transact, batchGet } = await serveStore(open());
    await transact({
      operations: ["a", "b"].map((resource) => ({
        resource,
        key: "sum",
        put: { value: value(500) },
      })),
    });
    let moved = 0;
    const move = async (): Promise<void> => {
      for (; moved < 150; moved++) {
        const amounts = [500 - moved, 500 + moved];
        await transact({
          operations: amounts.map((amount, i) => ({
            ...{ resource: i === 0 ? "a" : "b", key: "sum", put: { value: value(amount) } },
          })),
        });
      }
    };
    const sums = new Set<number>();
    const seen = new Set<string>();
    const matches = [
      "REVISION_MATCH_LINEARIZABLE",
      "REVISION_MATCH_ANY",
      "REVISION_MATCH_NOT_OLDER_THAN",
    ] as const;
    const read = async (): Promise<void> => {
      for (let i = 0; moved < 150; i++) {
        const match = matches[i % 3] ?? "REVISION_MATCH_ANY";
        const { objects, revision } = await batchGet({
          objects: ["a", "b"].map((resource) => ({ resource, key: "sum" })),
          revision_match: match,
          revision: match === "REVISION_MATCH_NOT_OLDER_THAN" ? "2" : "0",
        });
        sums.add(objects.reduce((sum, { object }) => sum + Number(object?.value), 0));
        seen.add(revision);
      }
    };
    await Promise.all([move(), read(), read()]);
    expect([...sums]).toEqual([1_000]);
    expect(seen.size).toBeGreaterThan(10);
    const { objects } = await batchGet({
      objects: [
        { resource: "b", key: "sum" },
        { resource: "a", key: "none" },
      ],
    });
    expect(objects).toMatchObject([{ object: { value: value(649) } }, { object: null }]);
    await client.delete({ resource: "b", key: "sum" });
  });

  test("deletes a prefix", async () => {
    const { client, transact, deletePrefix } = await serveStore(open());
    await transact({
      operations: ["p/1", "p/2", "q"].map((key) => ({ resource: "a", key, put: {} })),
    });
    const counted = await deletePrefix({ resource: "a", prefix: "p/", validate_only: true });
    const { deleted, revision } = await deletePrefix({ resource: "a", prefix: "p/" });
    expect([counted.deleted, deleted]).toEqual(["2", "2"]);
    const { items } = await client.list({ resource: "a" });
    expect(items.map(({ key }) => key)).toEqual(["q"]);
    const rest = await deletePrefix({ resource: "a", every_key: true });
    expect(rest).toMatchObject({ deleted: "1", revision: `${Number(revision) + 1}` });
    await expect(deletePrefix({ resource: "a" })).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "prefix" },
    });
    await expect(
      deletePrefix({ resource: "a", prefix: "p", every_key: true }),
    ).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "every_key" });
  });

  test("puts and deletes with return_current, validate_only and request_id", async () => {
    const { client } = await serveStore(open());
    const name = { resource: "a", key: "k" };
    const put = { ...name, value: value(1), expected_mod_revision: "0", request_id: "1" };
    const first = await client.put(put);
    expect(await client.put(put)).toEqual(first);
    await expect(client.put({ ...put, value: value(2) })).rejects.toMatchObject({
      reason: "REQUEST_ID_REUSED",
    });
    const conflict = await client.put({ ...put, request_id: "", return_current: true });
    expect(conflict).toMatchObject({ conflict: true, object: first.object });
    await expect(client.put({ ...put, request_id: "2" })).rejects.toMatchObject({
      ...{ reason: "REVISION_CONFLICT", metadata: { mod_revision: first.revision } },
    });
    const checked = await client.put({ ...name, value: value(3), validate_only: true });
    expect(checked).toMatchObject({ conflict: false, object: null });
    await expect(client.put({ ...put, request_id: "", validate_only: true })).rejects.toMatchObject(
      {
        reason: "REVISION_CONFLICT",
      },
    );
    const wrong = { ...name, expected_mod_revision: `${Number(first.revision) - 1}` };
    expect(await client.delete({ ...wrong, return_current: true })).toMatchObject({
      ...{ conflict: true, object: first.object },
    });
    expect(await client.delete({ ...name, validate_only: true })).toMatchObject({ object: null });
    const deletion = { ...name, request_id: "3" };
    const deleted = await client.delete(deletion);
    expect(deleted).toMatchObject({ conflict: false, object: first.object });
    expect(await client.delete(deletion)).toEqual(deleted);
    await expect(client.delete({ ...name, return_current: true })).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
    });
  });

  test.each<[string, string, object]>([
    ["no condition", "compares", { compares: [{ resource: "a", key: "k" }] }],
    ["no change", "operations", { operations: [{ resource: "a", key: "k" }] }],
    ["neither", "operations", {}],
    [
      "a long request_id",
      "request_id",
      { operations: [{ resource: "a", key: "k", put: {} }], request_id: "i".repeat(129) },
    ],
  ])("refuses a transaction with %s", async (_name, field, request) => {
    const { transact } = await serveStore(open());
    await expect(transact(request)).rejects.toMatchObject({ reason: "INVALID_REQUEST", field });
  });

  test("refuses objects that are too large for a response, twice the same, or none", async () => {
    const { client, batchGet } = await serveStore(open());
    const objects = ["1", "2", "3"].map((key) => ({ resource: "a", key }));
    for (const name of objects) await client.put({ ...name, value: Buffer.alloc(1.4 * 1024 ** 2) });
    await expect(batchGet({ objects })).rejects.toMatchObject({ reason: "LIST_TOO_LARGE" });
    expect((await batchGet({ objects: objects.slice(1) })).objects).toHaveLength(2);
    for (const invalid of [[], [...objects, ...objects], [{ resource: "a", key: "" }]]) {
      await expect(batchGet({ objects: invalid })).rejects.toMatchObject({
        reason: "INVALID_REQUEST",
      });
    }
  });
});

test("gets objects of ANY and NOT_OLDER_THAN revision without asking the store", async () => {
  const opened = openEtcdStore(etcd);
  const { client, transact, batchGet, caches } = await serveStore(opened);
  const names = ["a", "b"].map((resource) => ({ resource, key: "k" }));
  const operations = names.map((name) => ({ ...name, put: {} }));
  const { revision } = await transact({ operations });
  for (const name of names) await client.get(name);
  // A request to the store would wait until the end. Others than the calls ask it for its revision.
  const end = Promise.withResolvers<void>();
  const asked: string[] = [];
  for (const storage of [opened.a, opened.b]) {
    const get = storage.get.bind(storage);
    const currentRevision = storage.currentRevision.bind(storage);
    storage.get = async (request) => {
      asked.push(request.key);
      return get(request);
    };
    storage.currentRevision = async (...options) => {
      await end.promise;
      return currentRevision(...options);
    };
  }
  for (const match of ["REVISION_MATCH_ANY", "REVISION_MATCH_NOT_OLDER_THAN"] as const) {
    const at = match === "REVISION_MATCH_ANY" ? "0" : revision;
    const got = await batchGet({ objects: names, revision_match: match, revision: at });
    expect(got.objects.map(({ object }) => object?.mod_revision)).toEqual([revision, revision]);
    const least = [...caches.values()].map((cacher) => cacher.revision);
    expect(Number(got.revision)).toBeLessThanOrEqual(Math.min(...least));
  }
  expect(asked).toEqual([]);
  end.resolve();
});

test("gets objects at a revision that all caches have, while one of them is behind", async () => {
  const opened = openMemoryStore(systemClock);
  const behind = new SlowStorage(opened.a);
  const { client, transact, batchGet } = await serveStore({ ...opened, a: behind });
  const names = ["a", "b"].map((resource) => ({ resource, key: "k" }));
  const move = (amounts: readonly number[]) =>
    transact({
      operations: names.map((name, i) => ({ ...name, put: { value: value(amounts[i] ?? 0) } })),
    });
  const { revision } = await move([500, 500]);
  for (const name of names) await client.get(name);
  behind.hold();
  await move([499, 501]);
  expect((await client.get(names[1] ?? {})).object?.value).toEqual(value(501));
  for (const match of ["REVISION_MATCH_ANY", "REVISION_MATCH_NOT_OLDER_THAN"] as const) {
    const at = match === "REVISION_MATCH_ANY" ? "0" : revision;
    const got = await batchGet({ objects: names, revision_match: match, revision: at });
    expect(got).toMatchObject({
      revision,
      objects: Array(2).fill({ object: { value: value(500) } }),
    });
  }
  behind.release();
  const { objects } = await batchGet({ objects: names });
  expect(objects.map(({ object }) => `${object?.value}`)).toEqual(["499", "501"]);
});

test("a transaction finds another history for all of its resources", async () => {
  const opened = openMemoryStore(systemClock);
  const { client, transact } = await serveStore(opened);
  const names = ["a", "b"].map((resource) => ({ resource, key: "k" }));
  const before = await client.put({ ...names[0], value: value(1) });
  await opened.a.renewHistory(before.history_id);
  const { history_id } = await transact({
    operations: names.map((name) => ({ ...name, put: {} })),
  });
  expect(history_id).not.toBe(before.history_id);
  expect(history_id).toBe(await opened.b.historyId());
  for (const name of names) expect((await client.get(name)).history_id).toBe(history_id);
});

test("a server of grpc-js executes transactions, batch gets and deletions as well", async () => {
  const clock = new ManualTimers();
  const store = new MemoryStore({ clock });
  const storage = new MemoryStorage({ store, resource: "a" });
  const cacher = new Cacher({ name: "a", storage, clock, logger: pino({ level: "silent" }) });
  await startReady(cacher);
  onTestFinished(() => cacher.close());
  const { client } = await serveAdded(new Map([["a", cacher]]), clock, { store });
  const { transact, batchGet, deletePrefix } = transactingBy(client);
  const name = { resource: "a", key: "k" };
  const { revision } = await transact({ operations: [{ ...name, put: {} }] });
  const { objects } = await batchGet({ objects: [name] });
  expect(objects[0]?.object?.mod_revision).toBe(revision);
  expect((await deletePrefix({ resource: "a", every_key: true })).deleted).toBe("1");
});

test("a service without a store refuses what needs one", async () => {
  const { client } = await serveThings();
  const { transact, deletePrefix, batchGet } = transactingBy(client);
  const name = { resource: "things", key: "k" };
  const calls = [
    () => transact({ operations: [{ ...name, put: {} }] }),
    () => deletePrefix({ resource: "things", every_key: true }),
    () => client.put({ ...name, request_id: "1" }),
  ];
  for (const call of calls)
    await expect(call()).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "resource" });
  expect(await batchGet({ objects: [name] })).toMatchObject({ objects: [{ object: null }] });
});

test("Many DeletePrefix that take long do not hold the event loop", async () => {
  const opened = openMemoryStore(systemClock);
  let inTurn = 0;
  let most = 0;
  const { store } = opened;
  const remove = store.deletePrefix.bind(store);
  store.deletePrefix = (request) => {
    if (inTurn++ === 0) {
      setImmediate(() => {
        inTurn = 0;
      });
    }
    most = Math.max(most, inTurn);
    const end = performance.now() + 5;
    while (performance.now() < end);
    return remove(request);
  };
  const { deletePrefix } = await serveStore(opened);
  const all = Array.from({ length: 50 }, () => deletePrefix({ resource: "a", prefix: "x" }));
  await Promise.all(all);
  expect(most).toBeLessThan(5);
});
