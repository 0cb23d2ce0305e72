import { connect } from "../../../src/client/client.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { describeStorage } from "../../storage/conformance.ts";
import { clientOf, newPrefix, Source } from "../../storage/etcd/source.ts";
import { CachedServer } from "../cached-server.ts";

const etcdOf = etcdOfFile();

describeStorage(
  "A RemoteStorage over etcd",
  async () => {
    const etcd = await etcdOf();
    const source = new Source(etcd);
    const prefix = newPrefix();
    const etcdClient = clientOf(etcd);
    const server = await CachedServer.over(new EtcdStorage(etcdClient, { prefix }));
    const client = connect({ address: server.address });
    const storage = new RemoteStorage({ client, resource: "things" });
    return {
      storage,
      write: (operations) => source.write(prefix, operations),
      compact: (revision) => source.compact(revision),
      close: async () => {
        await storage.close();
        client.close();
        await server.close();
        await etcdClient.close();
      },
    };
  },
  { hasIntervals: false, keepsOwnHistory: true, histories: 10 },
);
