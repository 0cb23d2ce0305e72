import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/connect.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { describeStorage } from "../../storage/conformance.ts";
import { CachedServer } from "../cached-server.ts";

describeStorage(
  "A RemoteStorage over the embedded store",
  async () => {
    const store = new MemoryStorage({ clock: systemClock });
    const server = await CachedServer.over(store);
    const client = connect({ address: server.address });
    const storage = new RemoteStorage({ client, resource: "things" });
    return {
      storage,
      write: (operations) => store.txn(operations),
      compact: async (revision) => store.compact(revision),
      close: async () => {
        await storage.close();
        client.close();
        await server.close();
      },
    };
  },
  { keepsOwnHistory: true },
);
