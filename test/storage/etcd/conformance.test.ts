import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { describeStorage } from "../conformance.ts";
import { clientOf, newPrefix, Source } from "./source.ts";

const etcdOf = etcdOfFile();

describeStorage("EtcdStorage", async () => {
  const etcd = await etcdOf();
  const source = new Source(etcd);
  const prefix = newPrefix();
  const client = clientOf(etcd);
  const storage = new EtcdStorage(client, { prefix });
  return {
    storage,
    write: (operations) => source.write(prefix, operations),
    compact: (revision) => source.compact(revision),
    close: async () => {
      await storage.close();
      await client.close();
    },
  };
});
