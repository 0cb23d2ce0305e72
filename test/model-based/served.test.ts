import { test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import fc, { costlyRuns } from "../property.ts";
import { clientOf, newPrefix, Source } from "../storage/etcd/source.ts";
import { openOnFile } from "../storage/memory/store-on-file.ts";
import { ServedWorld, type Store, servedStep } from "./served-world.ts";

const etcdOf = etcdOfFile();

async function openEmbedded(): Promise<Store> {
  const storage = new MemoryStorage({ clock: systemClock });
  return {
    storages: [storage, storage],
    write: (operations) => storage.txn(operations),
    writeElsewhere: undefined,
    close: async () => {},
  };
}

/** Two replicas of a process that keeps its store in a file: the second one has a resource of the same keys. */
async function openFile(): Promise<Store> {
  const { store, close } = await openOnFile();
  const storages = [1, 2].map(() => new MemoryStorage({ store, resource: "things" }));
  const elsewhere = new MemoryStorage({ store, resource: "others" });
  return {
    storages,
    write: (operations) => (storages[0] as MemoryStorage).txn(operations),
    writeElsewhere: async () => (await elsewhere.put({ key: "k", value: Buffer.of() })).revision,
    close,
  };
}

async function openEtcd(): Promise<Store> {
  const etcd = await etcdOf();
  const source = new Source(etcd);
  const client = clientOf(etcd);
  const prefix = newPrefix();
  return {
    storages: [1, 2].map(() => new EtcdStorage(client, { prefix })),
    write: (operations) => source.write(prefix, operations),
    writeElsewhere: () =>
      source.write("/elsewhere", [{ type: "put", key: "", value: Buffer.of() }]),
    close: () => client.close(),
  };
}

test.each([
  ["the embedded store", openEmbedded, costlyRuns(240), false],
  // To shrink a case would take minutes. Its seed repeats it.
  ["the embedded store on a file", openFile, costlyRuns(60), true],
  ["etcd", openEtcd, costlyRuns(96), true],
])(
  "Two replicas over %s answer any requests of clients as the model does.",
  { timeout: 300_000 },
  async (_what, open, numRuns, endOnFailure) => {
    await fc.assert(
      fc.asyncProperty(fc.array(servedStep, { maxLength: 60, size: "max" }), async (steps) => {
        const world = await ServedWorld.open(await open());
        try {
          await world.live(steps);
        } finally {
          await world.close();
        }
      }),
      { numRuns, endOnFailure },
    );
  },
);
