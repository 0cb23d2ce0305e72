import { systemClock } from "../../../src/base/clock.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { describeStorage } from "../conformance.ts";

describeStorage(
  "MemoryStorage",
  async () => {
    const storage = new MemoryStorage({ clock: systemClock });
    return {
      storage,
      write: (operations) => storage.txn(operations),
      compact: (revision) => storage.compact(revision),
      close: () => storage.close(),
    };
  },
  { histories: 200 },
);
