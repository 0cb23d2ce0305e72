import { systemClock } from "../../../src/base/clock.ts";
import type { JournalEntry } from "../../../src/storage/journal/journal.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { JournalModel, type ModelWrite } from "./model.ts";

/*
 * A process that commits without a pause, and prints each revision that is kept, until it is killed.
 */

/** What a revision writes: the same in each process. */
export function writesOf(revision: number): readonly ModelWrite[] {
  const count = 1 + ((revision * 7) % 4);
  return Array.from({ length: count }, (_, i) => {
    const key = `key ${(revision * 31 + i * 17) % 61}`;
    const isDeletion = i > 0 && (revision + i) % 5 === 0;
    const value = Buffer.alloc((revision * 13) % 2_000, `${revision} `);
    return { key, value: isDeletion ? undefined : value };
  });
}

/** A model with all revisions up to this one. */
export function modelUpTo(revision: number): JournalModel {
  const model = new JournalModel();
  while (model.revision < revision) model.write(writesOf(model.revision + 1));
  return model;
}

/** Bounds that keep the removal of history and checkpoints at work. */
export const killedBounds = { maxHistoryBytes: 200_000 } as const;

async function main(file: string): Promise<void> {
  const journal = await SqliteJournal.open(file, { clock: systemClock, ...killedBounds });
  const model = modelUpTo(journal.revision);
  for (let size = 1; ; size = (size % 9) + 1) {
    const entries: JournalEntry[] = [];
    while (entries.length < size) {
      const entry = model.write(writesOf(model.revision + 1));
      if (entry?.type === "changes") {
        const { revision } = entry;
        entries.push({
          ...entry,
          request: { id: String(revision), fingerprint: "f", revision, before: revision - 1 },
        });
      }
    }
    await journal.commit(entries);
    process.stdout.write(`${journal.revision}\n`);
  }
}

if (process.argv[1] === import.meta.filename) await main(process.argv[2] as string);
