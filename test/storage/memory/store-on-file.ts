import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { MemoryStore, type MemoryStoreOptions } from "../../../src/storage/memory/memory-store.ts";
import { isThorough } from "../../thorough.ts";

/** Whether files are synced: a disk that others use as well takes a tenth of a second for it. */
const sync = isThorough ? "full" : "off";

/** An embedded store that keeps its data in a file. */
export interface StoreOnFile {
  readonly store: MemoryStore;
  /** Closes the store and removes the file. Rejects if the journal has failed. */
  close(): Promise<void>;
}

/** Opens one with a file of its own. */
export async function openOnFile(options: Partial<MemoryStoreOptions> = {}): Promise<StoreOnFile> {
  const { clock = systemClock } = options;
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-store-"));
  const faults: Error[] = [];
  const onFault = (error: Error): void => {
    faults.push(error);
  };
  const journal = await SqliteJournal.open(join(folder, "store"), { clock, sync });
  const store = await MemoryStore.open({ clock, journal, onFault, ...options });
  const close = async (): Promise<void> => {
    await store.close();
    await rm(folder, { recursive: true });
    if (faults.length > 0) throw new AggregateError(faults, "The journal of a test has failed.");
  };
  return { store, close };
}

/**
 * One for the tests of the file that calls this at its top, which use prefixes of their own: opened on first use, and removed
 * after the last test.
 */
export function storeOnFileOfFile(): () => Promise<MemoryStore> {
  let opened: Promise<StoreOnFile> | undefined;
  afterAll(async () => {
    await (await opened)?.close();
  });
  return async () => {
    opened ??= openOnFile();
    return (await opened).store;
  };
}
