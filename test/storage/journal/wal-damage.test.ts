import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import fc, { runs } from "../../property.ts";
import { DirectJournal } from "./direct-journal.ts";
import { JournalModel, seen } from "./model.ts";
import { openJournal, put, testFolder, write } from "./opened.ts";

const frameBytes = 24 + 4_096;
const headerBytes = 32;

/** What a process has left that was killed after 30 commits: the data file, with the commits in its write-ahead log. */
async function killed(): Promise<{ file: string; wal: Buffer; model: JournalModel }> {
  const folder = testFolder();
  const file = join(folder, "data");
  const model = new JournalModel();
  const journal = await openJournal({ file });
  for (let i = 0; i < 30; i++) await write(journal, model, put(`a${i % 7}`, 500 + i));
  const copy = join(folder, "killed");
  copyFileSync(file, copy);
  return { file: copy, wal: readFileSync(`${file}-wal`), model };
}

/** Opens a copy with this log. Returns its revision, after its state was compared; undefined: damage was found. */
function openedRevision(file: string, wal: Buffer, model: JournalModel): number | undefined {
  const copy = `${file}-copy`;
  copyFileSync(file, copy);
  writeFileSync(`${copy}-wal`, wal);
  let journal: DirectJournal;
  try {
    journal = new DirectJournal(copy);
  } catch (error) {
    expect(String(error)).toContain("is damaged: ");
    return undefined;
  }
  try {
    const { revision } = journal.data.numbers;
    expect(journal.state().map(seen)).toEqual([...model.stateAt(revision).values()].map(seen));
    return revision;
  } finally {
    journal.close();
  }
}

test("A write-ahead log that is whole has every commit", async () => {
  const { file, wal, model } = await killed();
  expect(openedRevision(file, wal, model)).toBe(31);
});

test("A write-ahead log that ends anywhere, as one that a loss of power cuts, has the commits before", async () => {
  const { file, wal, model } = await killed();
  const revisions = [0.9, 0.5, 0.2].map((part) =>
    openedRevision(file, wal.subarray(0, Math.floor(wal.length * part)), model),
  );
  expect(revisions.every((revision) => revision !== undefined && revision < 31)).toBe(true);
  expect(revisions).toEqual([...revisions].sort((a, b) => (b ?? 0) - (a ?? 0)));
});

test("A write-ahead log whose last commit is incomplete has all others", async () => {
  const { file, wal, model } = await killed();
  const torn = Buffer.from(wal);
  // The first frame of the last commit did not reach the disk, its last one did.
  torn.fill(0, wal.length - 2 * frameBytes, wal.length - frameBytes);
  expect(openedRevision(file, torn, model)).toBe(30);
});

test("A write-ahead log with a wrong byte is damaged, unless only its last commit can be concerned", async () => {
  const { file, wal, model } = await killed();
  const frames = (wal.length - headerBytes) / frameBytes;
  expect(Number.isInteger(frames)).toBe(true);
  let found = 0;
  fc.assert(
    fc.property(fc.nat(wal.length - 1), fc.integer({ min: 1, max: 255 }), (at, mask) => {
      const bytes = Buffer.from(wal);
      bytes[at] = (bytes[at] as number) ^ mask;
      const revision = openedRevision(file, bytes, model);
      if (revision === undefined) found++;
      else expect(revision).toBeGreaterThanOrEqual(29);
    }),
    { numRuns: runs(400) },
  );
  expect(found).toBeGreaterThan(60);
  const wrongHeader = Buffer.from(wal);
  wrongHeader[20] = (wrongHeader[20] as number) ^ 1;
  expect(openedRevision(file, wrongHeader, model)).toBeUndefined();
});
