import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { describeStorage } from "../storage/conformance.ts";
import { clientOf, newPrefix, Source } from "../storage/etcd/source.ts";
import { silent } from "./cached-store.ts";
import { startReady } from "./ready.ts";

const etcdOf = etcdOfFile();

describeStorage(
  "A Cacher around EtcdStorage",
  async () => {
    const etcd = await etcdOf();
    const source = new Source(etcd);
    const prefix = newPrefix();
    const client = clientOf(etcd);
    const storage = new EtcdStorage(client, { prefix });
    const cacher = new Cacher({ storage, clock: systemClock, logger: silent, name: "things" });
    await startReady(cacher);
    return {
      storage: cacher,
      write: (operations) => source.write(prefix, operations),
      compact: (revision) => source.compact(revision),
      close: async () => {
        await cacher.close();
        await client.close();
      },
    };
  },
  { keepsOwnHistory: true },
);
