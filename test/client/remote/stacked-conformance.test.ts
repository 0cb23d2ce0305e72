import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { describeStorage } from "../../storage/conformance.ts";
import { CachedServer } from "../cached-server.ts";

describeStorage(
  "A RemoteStorage over a server over a RemoteStorage",
  async () => {
    const store = new MemoryStorage({ clock: systemClock });
    const middle = await CachedServer.over(store);
    const middleClient = connect({ address: middle.address });
    const leaf = await CachedServer.over(
      new RemoteStorage({ client: middleClient, resource: "things" }),
    );
    const client = connect({ address: leaf.address });
    const storage = new RemoteStorage({ client, resource: "things" });
    return {
      storage,
      write: (operations) => store.txn(operations),
      compact: async (revision) => store.compact(revision),
      close: async () => {
        await storage.close();
        client.close();
        await leaf.close();
        middleClient.close();
        await middle.close();
      },
    };
  },
  { keepsOwnHistory: true },
);
