import { systemClock } from "../../src/base/clock.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { ResourceStorage } from "../../src/testing/resource-storage.ts";
import { describeStorage } from "../storage/conformance.ts";

describeStorage(
  "One resource of the store of a test service",
  async () => {
    const store = new MemoryStorage({ clock: systemClock });
    // Keys around those of the resource, which it must not have.
    for (const key of ["a\0before", "b", "bb\0after"]) {
      await store.put({ key, value: Buffer.from("of another resource") });
    }
    const storage = new ResourceStorage("b", store, { check: () => {}, closed: () => {} });
    return {
      storage,
      write: (operations) => store.txn(operations.map((one) => ({ ...one, key: `b\0${one.key}` }))),
      compact: (revision) => store.compact(revision),
      close: async () => {
        await storage.close();
        await store.close();
      },
    };
  },
  { histories: 50 },
);
