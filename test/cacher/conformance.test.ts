import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { describeStorage } from "../storage/conformance.ts";
import { silent } from "./cached-store.ts";
import { startReady } from "./ready.ts";

describeStorage(
  "A Cacher around the embedded store",
  async () => {
    const store = new MemoryStorage({ clock: systemClock });
    const cacher = new Cacher({
      storage: store,
      clock: systemClock,
      logger: silent,
      name: "things",
    });
    await startReady(cacher);
    return {
      storage: cacher,
      write: (operations) => store.txn(operations),
      compact: async (revision) => store.compact(revision),
      close: () => cacher.close(),
    };
  },
  { keepsOwnHistory: true },
);
