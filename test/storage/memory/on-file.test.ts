import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { describeStorage } from "../conformance.ts";
import { newPrefix } from "../etcd/source.ts";
import { storeOnFileOfFile } from "./store-on-file.ts";

const storeOf = storeOnFileOfFile();

describeStorage("A MemoryStorage on a file", async () => {
  const prefix = newPrefix();
  const storage = new MemoryStorage({ store: await storeOf(), resource: prefix, prefix });
  return {
    storage,
    write: (operations) => storage.txn(operations),
    compact: (revision) => storage.compact(revision),
    close: () => storage.close(),
  };
});
