import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { keyBytes } from "../../../src/model/key-bytes.ts";
import type { FoundRecords } from "../../../src/storage/journal/messages.ts";
import { readChanges, readHistory } from "../../../src/storage/journal/read-records.ts";
import type { Steps } from "../../../src/storage/journal/thread/key-index.ts";
import { openDataFile } from "../../../src/storage/journal/thread/open-file.ts";
import { JournalReader } from "../../../src/storage/journal/thread/reader.ts";
import { Retention } from "../../../src/storage/journal/thread/retention.ts";
import { JournalModel, type ModelWrite } from "./model.ts";
import { del, noBounds, openJournal, put, testFolder } from "./opened.ts";

/** A file with these revisions, which a test reads in steps, and removes history between. */
async function open(revisions: readonly (readonly ModelWrite[])[]) {
  const file = join(testFolder(), "data");
  const journal = await openJournal({ file });
  const model = new JournalModel();
  await journal.commit(revisions.flatMap((writes) => model.write(writes) ?? []));
  await journal.close();
  const data = openDataFile({
    ...{ file, sync: "full", historyId: "", maxHistoryMs: Infinity },
    ...{ maxHistoryBytes: Infinity, maxBytes: Infinity },
  });
  onTestFinished(() => data.close());
  const retention = new Retention(data, Infinity, Infinity);
  const compact = (oldest: number): void => {
    data.transact((numbers) => ({ ...numbers, oldest }));
    while (retention.clean(false));
  };
  return { reader: new JournalReader(data), compact };
}

/** Executes a read, and `between` after its first step. */
function result(steps: Steps<FoundRecords>, between: () => void): FoundRecords {
  const first = steps.next();
  expect(first.done).toBe(false);
  between();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const many = Array.from({ length: 300 }, (_, i) => i);
const from = keyBytes("");

describe("A read of a journal whose history is removed between its steps", () => {
  const tooOld = expect.objectContaining({ kind: "too old" });

  test("is too old for changes that are gone", async () => {
    const { reader, compact } = await open(many.map((i) => [put("a", String(i))]));
    const steps = reader.changes({ ...noBounds, type: "changes", after: 1, upTo: 301 });
    expect(() => result(steps, () => compact(200))).toThrow(tooOld);
  });

  test("is too old for a page of a state that is gone", async () => {
    const { reader, compact } = await open([
      many.map((i) => put(`a${i + 1_000}`)),
      many.map((i) => (i % 2 === 0 ? put(`a${i + 1_000}`) : del(`a${i + 1_000}`))),
    ]);
    const page = { ...noBounds, type: "page", revision: 2, from, to: undefined } as const;
    expect(() => result(reader.page(page), () => compact(3))).toThrow(tooOld);
  });

  test("has the changes of a key that are left", async () => {
    const { reader, compact } = await open(many.map((i) => [put("a", String(i))]));
    const call = { ...noBounds, type: "history", key: keyBytes("a"), upTo: 301 } as const;
    const { records, next } = result(reader.history(call), () => compact(290));
    const revisions = readHistory(records).map(({ revision }) => revision);
    expect(revisions).toEqual(Array.from({ length: revisions.length }, (_, i) => 301 - i));
    expect(revisions.length).toBeGreaterThanOrEqual(12);
    expect(next).toBeUndefined();
  });

  test("is right if it does not need what was removed", async () => {
    const { reader, compact } = await open(many.map((i) => [put("a", String(i))]));
    const steps = reader.changes({ ...noBounds, type: "changes", after: 100, upTo: 301 });
    const { records } = result(steps, () => compact(90));
    const revisions = readChanges(records).map(({ revision }) => revision);
    expect(revisions).toEqual(Array.from({ length: 201 }, (_, i) => i + 101));
  });
});
