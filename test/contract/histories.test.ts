import { describe, expect, test } from "vitest";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { describeStoreContract, openEtcd } from "./backends.ts";
import { openWorld, type Replica, resource } from "./replica.ts";
import { eventsUntil, firstOf } from "./watch-summaries.ts";

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The id that each kind of call responds with, where it was asked with this one. */
const calls: readonly [string, (replica: Replica, history_id: string) => Promise<string>][] = [
  [
    "Get",
    async ({ client }, history_id) =>
      (await client.get({ resource, key: "a", history_id })).history_id,
  ],
  [
    "List",
    async ({ client }, history_id) => (await client.list({ resource, history_id })).history_id,
  ],
  [
    "Watch",
    async ({ client }, history_id) => {
      const watch = client.watch({ resource, history_id, after_revision: 1 });
      const { history_id: reported } = await firstOf(watch);
      watch.cancel();
      return reported;
    },
  ],
  [
    "Watch with initial events",
    async ({ client }, history_id) => {
      const watch = client.watch({ resource, history_id, send_initial_events: true });
      const { history_id: reported } = await firstOf(watch);
      watch.cancel();
      return reported;
    },
  ],
  [
    "Put",
    async ({ client }, history_id) =>
      (await client.put({ resource, key: "a", history_id })).history_id,
  ],
  [
    "Delete",
    async ({ client }, history_id) =>
      (await client.delete({ resource, key: "a", history_id })).history_id,
  ],
];

const etcdOf = describeStoreContract("history_id", (open) => {
  test.each(calls)("%s: every replica accepts and returns the same", async (_name, call) => {
    const world = await openWorld(open);
    await world.write(["a", ""]);
    const replica = await world.another();
    const { history_id } = await world.client.list({ resource });
    expect(history_id).toMatch(uuid);
    expect(await call(replica, history_id)).toBe(history_id);
  });

  test.each(calls)(
    "%s of another history: HISTORY_CHANGED, without effect",
    async (_name, call) => {
      const world = await openWorld(open);
      const before = await world.write(["a", ""]);
      const { history_id } = await world.client.list({ resource });
      await expect(call(world, "another")).rejects.toMatchObject({
        reason: "HISTORY_CHANGED",
        metadata: { history_id },
      });
      expect((await world.client.list({ resource })).revision).toBe(`${before}`);
    },
  );
});

test("The embedded store has a new history_id at each start.", async () => {
  const clock = new ManualTimers();
  const ids = [new MemoryStorage({ clock }), new MemoryStorage({ clock })].map((s) =>
    s.historyId(),
  );
  expect(new Set(await Promise.all(ids)).size).toBe(2);
});

describe("history_id, on etcd", () => {
  async function valueAt(key: string): Promise<string> {
    const { source } = await openEtcd(await etcdOf());
    const response = await source.call("kv/range", { key: Buffer.from(key).toString("base64") });
    const { kvs = [] } = response as { kvs?: readonly { value: string }[] };
    return Buffer.from(kvs[0]?.value ?? "", "base64").toString();
  }

  test("is the UUID in the key /watchfanout/history, created if absent", async () => {
    const backend = await openEtcd(await etcdOf());
    const key = Buffer.from("/watchfanout/history").toString("base64");
    await backend.source.call("kv/deleterange", { key });
    const { client } = await openWorld(async () => backend);
    const { history_id } = await client.list({ resource });
    expect(history_id).toMatch(uuid);
    expect(await valueAt("/watchfanout/history")).toBe(history_id);
  });

  test("is in another key if configured", async () => {
    const historyKey = "/elsewhere/history";
    const backend = await openEtcd(await etcdOf(), "/configured/", { historyKey });
    const { client } = await openWorld(async () => backend);
    const { history_id } = await client.list({ resource });
    expect(history_id).toMatch(uuid);
    expect(await valueAt(historyKey)).toBe(history_id);
  });

  test("is empty if the key holds an invalid id", async () => {
    const historyKey = "/spoilt/history";
    const backend = await openEtcd(await etcdOf(), "/spoilt-things/", { historyKey });
    await backend.source.putBytes(Buffer.from(historyKey), "no id, but a sentence");
    const { client } = await openWorld(async () => backend);
    expect((await client.list({ resource })).history_id).toBe("");
  });

  test("is hidden from a resource with an empty prefix, and its revision counts", async () => {
    const historyKey = "/hidden/history";
    const backend = await openEtcd(await etcdOf(), "", { historyKey });
    const world = await openWorld(async () => backend);
    const { client } = world;
    await client.list({ resource }); // Now there is one.
    expect(await valueAt(historyKey)).toMatch(uuid);
    const request = { resource, prefix: "/hidden/" };
    const watch = client.watch({ ...request, eager_bookmarks: true });
    await watch.next();
    await expect(client.get({ resource, key: historyKey })).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
    });
    for (const call of [client.put, client.delete]) {
      await expect(call({ resource, key: historyKey })).rejects.toMatchObject({
        reason: "INVALID_REQUEST",
        field: "key",
      });
    }
    expect((await client.list(request)).items).toEqual([]);
    const id = await valueAt(historyKey);
    const revision = await backend.source.putBytes(Buffer.from(historyKey), id);
    expect(await eventsUntil(watch, revision)).toEqual([]);
    const added = await world.write(["/hidden/beside", ""]);
    expect(await eventsUntil(watch, added)).toEqual([`ADDED /hidden/beside@${added}`]);
    await world.write(["/hidden/beside", null]);
  });
});
