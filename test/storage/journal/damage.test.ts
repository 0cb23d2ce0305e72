import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { RecordFault } from "../../../src/storage/journal/record.ts";
import { JournalFailure } from "../../../src/storage/journal/thread/failures.ts";
import fc, { runs } from "../../property.ts";
import { DirectJournal } from "./direct-journal.ts";
import { JournalModel, seen, seenChanges, seenEvents } from "./model.ts";
import { del, noBounds, openJournal, put, testFolder, write } from "./opened.ts";

const pageBytes = 4_096;
const keys = Array.from({ length: 40 }, (_, i) => `key ${String(i * 7).padStart(3, "0")}`);

/** A closed data file with history, deletions, values of one and of several pages, leases and requests. */
async function smallFile(): Promise<{ file: string; model: JournalModel }> {
  const file = join(testFolder(), "data");
  const journal = await openJournal({ file });
  const model = new JournalModel();
  for (let i = 0; i < 120; i++) {
    const key = keys[(i * 13) % keys.length] as string;
    const other = keys[(i * 5 + 1) % keys.length] as string;
    const size = i % 30 === 0 ? 9_000 : 100 + i;
    await write(
      journal,
      model,
      put(key, size),
      ...(i % 3 === 0 && other !== key ? [del(other)] : []),
    );
  }
  await journal.commit([{ type: "compacted", revision: 20 }]);
  model.oldest = 20;
  for (let id = 1n; id < 9n; id++) {
    await journal.commit([{ type: "lease", lease: { id, ttlSeconds: 9, isGranted: true } }]);
  }
  await journal.close();
  return { file, model };
}

/** Whether the error is one that says what is wrong. */
function isReported(error: unknown): boolean {
  return (
    error instanceof JournalFailure ||
    error instanceof RecordFault ||
    error instanceof WatchFanoutError ||
    // SQLite's own, which the thread turns into a JournalFailure.
    (error instanceof Error && "errcode" in error)
  );
}

let refused = 0;
let answered = 0;

/** Each answer must be right, or an error. */
function check(read: () => unknown, wanted: unknown): void {
  let found: unknown;
  try {
    found = read();
  } catch (error) {
    if (!isReported(error)) throw error;
    refused++;
    return;
  }
  answered++;
  expect(found).toEqual(wanted);
}

/** Opens a file, and compares every answer that it gives. */
function checkFile(file: string, model: JournalModel): void {
  let journal: DirectJournal;
  try {
    journal = new DirectJournal(file);
  } catch (error) {
    if (!isReported(error)) throw error;
    refused++;
    return;
  }
  try {
    const now = model.revision;
    check(() => journal.data.numbers.revision, now);
    check(() => journal.state().map(seen), [...model.stateAt(now).values()].map(seen));
    check(() => journal.data.leases.all().length, 8);
    const all = { ...noBounds, after: 20, upTo: now };
    check(() => seenChanges(journal.changesAfter(20)), seenChanges(model.changesAfter(all)));
    for (const revision of [20, 60, now]) {
      for (const from of ["", "key 1"]) {
        const page = { ...noBounds, revision, from, to: undefined };
        check(() => journal.page(page).objects.map(seen), model.page(page).objects.map(seen));
      }
    }
    for (const key of [...keys, "missing"]) {
      const wanted = model.history({ ...noBounds, key, upTo: now });
      check(() => seenEvents(journal.history(key, now).events), seenEvents(wanted.events));
    }
  } finally {
    journal.close();
  }
}

/** Checks copies of a file with these bytes. */
function checkDamaged(file: string, model: JournalModel, bytes: Buffer): void {
  const copy = `${file}-damaged`;
  writeFileSync(copy, bytes);
  try {
    checkFile(copy, model);
  } finally {
    for (const end of ["", "-wal", "-shm"]) rmSync(copy + end, { force: true });
  }
}

test("A file that is whole answers everything", async () => {
  const { file, model } = await smallFile();
  [refused, answered] = [0, 0];
  checkFile(file, model);
  expect(refused).toBe(0);
  expect(answered).toBeGreaterThan(45);
});

test("With any page lost, replaced by another one or cut off, every answer is right or an error", async () => {
  const { file, model } = await smallFile();
  const whole = readFileSync(file);
  const pages = whole.length / pageBytes;
  expect(pages).toBeGreaterThan(15);
  [refused, answered] = [0, 0];
  for (let page = 0; page < pages; page++) {
    const start = page * pageBytes;
    const without = (change: (bytes: Buffer) => void): void => {
      const bytes = Buffer.from(whole);
      change(bytes);
      checkDamaged(file, model, bytes);
    };
    without((bytes) => bytes.fill(0, start, start + pageBytes));
    without((bytes) => bytes.fill(0xa5, start, start + pageBytes));
    without((bytes) => bytes.fill(0xff, start + pageBytes / 2, start + pageBytes));
    for (const other of [1, 5, pages - 1]) {
      const from = ((page + other) % pages) * pageBytes;
      without((bytes) => bytes.copyWithin(start, from, from + pageBytes));
    }
    checkDamaged(file, model, whole.subarray(0, start));
    checkDamaged(file, model, whole.subarray(0, start + 1_000));
  }
  expect(refused).toBeGreaterThan(pages * 5);
});

test("With any bytes changed, every answer is right or an error", async () => {
  const { file, model } = await smallFile();
  const whole = readFileSync(file);
  [refused, answered] = [0, 0];
  const flips = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.integer({ min: 1, max: 255 })), {
    ...{ minLength: 1, maxLength: 3 },
  });
  fc.assert(
    fc.property(flips, (changes) => {
      const bytes = Buffer.from(whole);
      for (const [at, mask] of changes) bytes[at] = (bytes[at] as number) ^ mask;
      checkDamaged(file, model, bytes);
    }),
    { numRuns: runs(1_000) },
  );
  // Free bytes of pages change nothing.
  expect(refused).toBeGreaterThan(100);
  expect(answered).toBeGreaterThan(100);
});

test("A page of an earlier time is found", async () => {
  const folder = testFolder();
  const file = join(folder, "data");
  const model = new JournalModel();
  for (let round = 0; round < 6; round++) {
    const journal = await openJournal({ file });
    for (let i = 0; i < 20; i++) {
      await write(journal, model, put(keys[(i * 13 + round) % keys.length] as string, 150 + round));
    }
    await journal.close();
    if (round === 4) copyFileSync(file, join(folder, "earlier"));
  }
  for (let id = 1n; id < 9n; id++) {
    const journal = await openJournal({ file });
    await journal.commit([{ type: "lease", lease: { id, ttlSeconds: 9, isGranted: true } }]);
    await journal.close();
  }
  model.oldest = 20;
  const [whole, earlier] = [readFileSync(file), readFileSync(join(folder, "earlier"))];
  [refused, answered] = [0, 0];
  for (let start = 0; start < earlier.length; start += pageBytes) {
    const bytes = Buffer.from(whole);
    earlier.copy(bytes, start, start, start + pageBytes);
    checkDamaged(file, model, bytes);
  }
  expect(refused).toBeGreaterThan(0);
});
