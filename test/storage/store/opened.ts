import type { Clock } from "../../../src/base/clock.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../../src/storage/etcd/etcd-store.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Store, TransactResult } from "../../../src/storage/store.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { FakeClock } from "../../fake-clock.ts";
import { clientOf, newPrefix } from "../etcd/source.ts";
import { openOnFile } from "../memory/store-on-file.ts";

/** A store of the resources `a` and `b`. */
export interface OpenedStore {
  readonly store: Store;
  readonly a: Storage;
  readonly b: Storage;
  close(): Promise<void>;
}

export function openMemoryStore(clock: Clock = new FakeClock()): OpenedStore {
  const store = new MemoryStore({ clock, maxDeletedObjects: 20 });
  const [a, b] = ["a", "b"].map((resource) => new MemoryStorage({ store, resource }));
  return { store, a: a as Storage, b: b as Storage, close: () => store.close() };
}

/** With a file of its own. */
export async function openFileStore(): Promise<OpenedStore> {
  const { store, close } = await openOnFile({ maxDeletedObjects: 20 });
  const [a, b] = ["a", "b"].map((resource) => new MemoryStorage({ store, resource }));
  return { store, a: a as Storage, b: b as Storage, close };
}

/** Resources of an etcd, below a prefix that no other test has, which is also that of the service's own keys. */
export function openEtcdStore(etcd: Pick<Etcd, "url">): OpenedStore {
  const prefix = newPrefix();
  const client = clientOf(etcd, { historyKey: `${prefix}a/history` });
  const prefixes = new Map(["a", "b"].map((name) => [name, `${prefix}${name}/`]));
  const [a, b] = [...prefixes.values()].map((each) => new EtcdStorage(client, { prefix: each }));
  return {
    store: new EtcdStore(client, { prefixes, maxDeletedObjects: 20 }),
    a: a as Storage,
    b: b as Storage,
    close: async () => {
      await a?.close();
      await b?.close();
      await client.close();
    },
  };
}

/** What the results of a transaction say, whatever holds the objects. */
export function shownResults({ results }: Pick<TransactResult, "results">) {
  return results.map(({ object, previous, previousLeftOut = false }) => ({
    ...{ object: shownObject(object), previous: shownObject(previous), previousLeftOut },
  }));
}

export function shownObject(object: StoredObject | undefined) {
  if (object === undefined) return undefined;
  const { key, value, createRevision, modRevision, version, lease } = object;
  const text = Buffer.from(value).toString();
  return { key, text, createRevision, modRevision, version, lease };
}
