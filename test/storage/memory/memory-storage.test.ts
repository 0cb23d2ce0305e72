import { systemClock } from "../../../src/base/clock.ts";
import {
  MemoryStorage,
  type MemoryStorageOptions,
} from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Opened } from "../conformance/opened.ts";
import { describeStorage } from "../conformance.ts";

function open(options: MemoryStorageOptions, close?: () => Promise<void>): Opened {
  const storage = new MemoryStorage(options);
  return {
    storage,
    write: (operations) => storage.txn(operations),
    compact: (revision) => storage.compact(revision),
    close: close ?? (() => storage.close()),
  };
}

describeStorage("MemoryStorage", async () => open({ clock: systemClock }), { isFast: true });

describeStorage("A MemoryStorage with a prefix, raw keys, and neighbours", async () => {
  const store = new MemoryStore({ clock: systemClock });
  const opened = open({ store, resource: "things", prefix: "é/" }, () => store.close());
  await store.update((draft) => {
    // The revision after this one is the first that the resource sees.
    for (const key of ["", "é", "é/", "é/\udcff", "é0", "\udcff"]) draft.put(key, Buffer.of(), 0n);
  });
  return opened;
});
