import { describe, onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import type { Storage } from "../../src/storage/storage.ts";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { clientOf, newPrefix, Source } from "../storage/etcd/source.ts";
import { storeOnFileOfFile } from "../storage/memory/store-on-file.ts";
import { isThorough } from "../thorough.ts";

/** A store that services are put in front of, and the ways to it that do not lead through them. */
export interface Backend {
  readonly clock: ManualTimers;
  /** As each replica has one of its own. */
  storage(): Storage;
  /** Applies everything in one transaction, and resolves to the store's revision afterwards. */
  write(operations: readonly Operation[]): Promise<number>;
  compact(revision: number): Promise<void>;
}

export interface EtcdBackend extends Backend {
  readonly etcd: Etcd;
  readonly source: Source;
  /** The resource's prefix in etcd. */
  readonly prefix: string;
}

export type OpenBackend = () => Promise<Backend>;

async function openEmbedded(): Promise<Backend> {
  const clock = new ManualTimers();
  const storage = new MemoryStorage({ clock });
  onTestFinished(() => storage.close());
  return {
    clock,
    storage: () => storage,
    write: (operations) => storage.txn(operations),
    compact: (revision) => storage.compact(revision),
  };
}

/** A resource of a store that keeps its data in a file, and that other tests write to as well. */
async function openOnFile(store: MemoryStore): Promise<Backend> {
  const prefix = newPrefix();
  const storage = new MemoryStorage({ store, resource: prefix, prefix });
  return {
    clock: new ManualTimers(),
    // The service closes what it is given.
    storage: () => new MemoryStorage({ store, resource: prefix, prefix }),
    write: (operations) => storage.txn(operations),
    compact: (revision) => storage.compact(revision),
  };
}

/** `prefix`: default one that no other test has. */
export async function openEtcd(
  etcd: Etcd,
  prefix: string = newPrefix(),
  options: Parameters<typeof clientOf>[1] = {},
): Promise<EtcdBackend> {
  const source = new Source(etcd);
  return {
    ...{ etcd, source, prefix, clock: new ManualTimers() },
    storage: () => {
      // etcd runs on the machine's clock; only the service runs on the test's.
      const client = clientOf(etcd, { clock: systemClock, ...options });
      const storage = new EtcdStorage(client, { prefix });
      onTestFinished(async () => {
        await storage.close();
        await client.close();
      });
      return storage;
    },
    write: (operations) => source.write(prefix, operations),
    compact: (revision) => source.compact(revision),
  };
}

/**
 * Rows of the wire contract, each a test, over the embedded store in memory and over a real etcd; in a thorough run also over the
 * embedded store on a file. Called at the top of a file. Returns that etcd, for rows that only it has.
 *
 * Added to a server of grpc-js, rows run over the embedded store only: a server sees the cache, not the store behind it.
 */
export function describeContract(
  name: string,
  rows: (open: OpenBackend) => void,
): () => Promise<Etcd> {
  return describeRows(name, rows, isThorough);
}

/** The same for rows that depend on the store more than on the cache: on a file in each run. */
export function describeStoreContract(
  name: string,
  rows: (open: OpenBackend) => void,
): () => Promise<Etcd> {
  return describeRows(name, rows, true);
}

function describeRows(
  name: string,
  rows: (open: OpenBackend) => void,
  areOnFile: boolean,
): () => Promise<Etcd> {
  const etcdOf = etcdOfFile();
  describe(`${name}, on the embedded store`, () => rows(openEmbedded));
  if (process.env["TEST_SERVER"] === "grpc-js") return etcdOf;
  if (areOnFile) {
    const storeOf = storeOnFileOfFile();
    describe(`${name}, on a file`, () => rows(async () => openOnFile(await storeOf())));
  }
  describe(`${name}, on etcd`, () => rows(async () => openEtcd(await etcdOf())));
  return etcdOf;
}
