/** Uses all parts of the etcd storage, closes everything, and must then exit by itself. */
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { clientOf } from "./source.ts";

const [url = ""] = process.argv.slice(2);
const client = clientOf({ url });
const storage = new EtcdStorage(client, { prefix: "open-and-close/" });
const { revision } = await storage.put({ key: "a", value: new Uint8Array() });
const stream = storage.watch({
  scope: { prefix: "" },
  withPrevious: false,
  afterRevision: revision,
});
const progress = new Promise<void>((resolve) => {
  stream.onReadable(resolve);
});
stream.read();
storage.requestProgress();
await progress;
await storage.close();
await client.close();
