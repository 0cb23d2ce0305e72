import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/base/clock.ts";
import { hasReason } from "../../../../src/base/errors.ts";
import { MemoryStorage } from "../../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../../src/storage/memory/memory-store.ts";
import { openJournal } from "../../journal/opened.ts";

const value = Buffer.alloc(10_000, "x");

async function open() {
  const journal = await openJournal({ maxBytes: 2 * 1024 ** 2 });
  const store = await MemoryStore.open({ clock: systemClock, journal, onFault: () => {} });
  onTestFinished(() => store.close());
  const storage = new MemoryStorage({ store, resource: "things", prefix: "" });
  /** Resolves to whether there was room. */
  const fits = async (key: string, bytes: Buffer): Promise<boolean> => {
    try {
      await storage.put({ key, value: bytes });
      return true;
    } catch (error) {
      if (!hasReason(error, "STORAGE_FULL")) throw error;
      return false;
    }
  };
  return { store, storage, fits };
}

test("A full file takes deletions and compactions while others try to put", async () => {
  const { store, storage, fits } = await open();
  for (let count = 0; await fits(`a${count}`, value); count++);
  let refused = 0;
  let isOver = false;
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    for (let i = 0; !isOver; i++) if (!(await fits(`w${writer}-${i}`, value))) refused++;
  });
  for (let i = 0; i < 20; i++) {
    const { revision } = await storage.delete({ key: `a${i}` });
    await store.compact(revision);
  }
  isOver = true;
  await Promise.all(writers);
  expect(refused).toBeGreaterThan(0);
  for (let i = 0; i < 20; i++) {
    const { object } = await storage.get({ key: `a${i}`, at: { match: "LINEARIZABLE" } });
    expect(object).toBeUndefined();
  }
});

test("A nearly full file takes small objects that were put together with ones that do not fit", async () => {
  const { fits } = await open();
  const large = Buffer.alloc(400_000, "x");
  for (let count = 0; await fits(`a${count}`, large); count++);
  for (let round = 0; round < 5; round++) {
    const small = Array.from({ length: 10 }, (_, i) => fits(`s${round}-${i}`, Buffer.from("x")));
    const [isLargeKept, ...areKept] = await Promise.all([fits("large", large), ...small]);
    expect(isLargeKept).toBe(false);
    expect(areKept).not.toContain(false);
  }
});
