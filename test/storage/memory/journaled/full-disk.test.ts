import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/base/clock.ts";
import { hasReason } from "../../../../src/base/errors.ts";
import { MemoryStorage } from "../../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../../src/storage/memory/memory-store.ts";
import { openJournal } from "../../journal/opened.ts";

const value = Buffer.alloc(10_000, "x");

test("A full file takes deletions while others try to put", async () => {
  const journal = await openJournal({ maxBytes: 2 * 1024 ** 2 });
  const store = await MemoryStore.open({ clock: systemClock, journal, onFault: () => {} });
  onTestFinished(() => store.close());
  const storage = new MemoryStorage({ store, resource: "things", prefix: "" });
  let full = 0;
  const tryPut = (key: string) =>
    storage.put({ key, value }).catch((error: unknown) => {
      if (!hasReason(error, "STORAGE_FULL")) throw error;
      full++;
      return undefined;
    });
  let count = 0;
  while ((await tryPut(`a${count}`)) !== undefined) count++;
  let isOver = false;
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    for (let i = 0; !isOver; i++) await tryPut(`w${writer}-${i}`);
  });
  const before = full;
  for (let i = 0; i < 20; i++) await storage.delete({ key: `a${i}` });
  isOver = true;
  await Promise.all(writers);
  expect(full).toBeGreaterThan(before);
  for (let i = 0; i < 20; i++) {
    const { object } = await storage.get({ key: `a${i}`, at: { match: "LINEARIZABLE" } });
    expect(object).toBeUndefined();
  }
});
