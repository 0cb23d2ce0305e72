import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { SqliteJournal } from "../../src/storage/journal/sqlite-journal.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";

/**
 * One embedded store that keeps its data in a file, for the tests of the file that calls this at its top, which use prefixes of
 * their own: opened on first use, and removed after the last test.
 */
export function durableOfFile(): () => Promise<MemoryStore> {
  let opened: Promise<MemoryStore> | undefined;
  const faults: Error[] = [];
  let folder = "";
  afterAll(async () => {
    await (await opened)?.close();
    if (folder !== "") await rm(folder, { recursive: true });
    expect(faults).toEqual([]);
  });
  const open = async (): Promise<MemoryStore> => {
    const clock = systemClock;
    folder = await mkdtemp(join(tmpdir(), "watch-fanout-durable-"));
    const journal = await SqliteJournal.open(join(folder, "store"), { clock });
    return MemoryStore.open({ clock, journal, onFault: (error) => faults.push(error) });
  };
  return () => {
    opened ??= open();
    return opened;
  };
}
