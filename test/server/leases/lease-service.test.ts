import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { startServer } from "../../../src/server/server.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../../src/storage/etcd/etcd-store.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Store } from "../../../src/storage/store.ts";
import { startReady } from "../../cacher/ready.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { clientOf, newPrefix, silent } from "../../storage/etcd/source.ts";
import { openOnFile } from "../../storage/memory/store-on-file.ts";
import { TestClient } from "../test-client.ts";

let etcd: Etcd;

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

/** The store of the resources `things` and `others`. */
interface Stored {
  readonly store: Store;
  readonly storages: ReadonlyMap<string, Storage>;
}

async function onEtcd(): Promise<Stored> {
  const client = clientOf(etcd);
  const resources = ["things", "others"].map((name) => ({ name, prefix: newPrefix() }));
  const prefixes = new Map(resources.map(({ name, prefix }) => [name, prefix]));
  const store = new EtcdStore(client, { prefixes });
  onTestFinished(async () => {
    await store.close();
    await client.close();
  });
  const storages = new Map(
    resources.map(({ name, prefix }) => [name, new EtcdStorage(client, { prefix })]),
  );
  return { store, storages };
}

async function embedded(): Promise<Stored> {
  const store = new MemoryStore({ clock: systemClock });
  onTestFinished(() => store.close());
  return embeddedIn(store);
}

async function onFile(): Promise<Stored> {
  const { store, close } = await openOnFile();
  onTestFinished(close);
  return embeddedIn(store);
}

function embeddedIn(store: MemoryStore): Stored {
  const storages = new Map(
    ["things", "others"].map((resource) => [resource, new MemoryStorage({ store, resource })]),
  );
  return { store, storages };
}

async function serve({ store, storages }: Stored): Promise<TestClient> {
  const [clock, logger] = [systemClock, silent];
  const cachers = new Map<string, Cacher>();
  for (const [name, storage] of storages) {
    const cacher = new Cacher({ storage, clock, logger, name });
    await startReady(cacher);
    cachers.set(name, cacher);
  }
  const listen = { host: "127.0.0.1", port: 0 };
  const server = await startServer({ resources: cachers, store, listen, clock, logger });
  const client = new TestClient(server.port);
  onTestFinished(async () => {
    client.close();
    await server.drain(0);
    for (const cacher of cachers.values()) await cacher.close();
  });
  return client;
}

describe.each([
  ["etcd", onEtcd],
  ["the embedded store", embedded],
  ["the embedded store on a file", onFile],
])("LeaseService on %s", (_, open) => {
  test("grants, renews, reads and revokes a lease with objects of several resources", async () => {
    const client = await serve(await open());
    const lease = await client.grant(60);
    expect(BigInt(lease) > 0n).toBe(true);
    await client.put({ resource: "things", key: "a", lease });
    await client.put({ resource: "others", key: "ключ", lease });
    const state = await client.timeToLive(lease);
    expect(Number(state.granted_ttl?.seconds)).toBe(60);
    expect(Number(state.ttl?.seconds)).toBeGreaterThanOrEqual(57);
    expect(state.others).toBe("0");
    expect(new Set(state.objects.map(({ resource, key }) => `${resource} ${key}`))).toEqual(
      new Set(["things a", "others ключ"]),
    );
    const stream = client.keepAlive();
    const [ttlMs, unknown] = await stream.renew(lease, "77");
    expect(ttlMs).toBeGreaterThan(55_000);
    expect(ttlMs).toBeLessThanOrEqual(60_000);
    expect(unknown).toMatch(/There is no such lease/);
    await client.revoke(lease);
    expect(await stream.renew(lease)).toEqual([expect.stringMatching(/There is no such lease/)]);
    const gone = { reason: "LEASE_NOT_FOUND" };
    await expect(client.revoke(lease)).rejects.toMatchObject(gone);
    await expect(client.timeToLive(lease)).rejects.toMatchObject(gone);
    await expect(client.put({ resource: "things", key: "b", lease })).rejects.toMatchObject(gone);
    for (const resource of ["things", "others"]) {
      expect((await client.list({ resource })).items).toEqual([]);
    }
    stream.halfClose();
    expect((await stream.status).code).toBe(0);
  });
});
