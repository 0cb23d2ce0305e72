import { statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { JournalModel } from "./model.ts";
import { noBounds, openJournal, put, testFolder, write } from "./opened.ts";

const mebibyte = 1024 ** 2;

test("The write-ahead log is bounded by what is written between checkpoints, and is short again after a large commit", async () => {
  const file = join(testFolder(), "data");
  const journal = await openJournal({ file });
  const model = new JournalModel();
  const walBytes = async (): Promise<number> => {
    // The checkpoint comes after a step of a read, and before the next call.
    await journal.page({ ...noBounds, revision: journal.revision, from: "a", to: "a" });
    await journal.leases();
    return statSync(`${file}-wal`).size;
  };
  for (let i = 0; i < 24; i++) {
    await write(journal, model, put(`a${i % 4}`, mebibyte));
    // A checkpoint at 2,000 pages, and one commit.
    expect(await walBytes()).toBeLessThan(10 * mebibyte);
  }
  await write(journal, model, ...Array.from({ length: 40 }, (_, i) => put(`b${i}`, mebibyte)));
  expect(await walBytes()).toBeLessThanOrEqual(16 * mebibyte);
  expect(journal.bytes).toBe(statSync(file).size + (await walBytes()));
});
