import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { StoredObject } from "../../../src/model/object.ts";
import {
  SqliteJournal,
  type SqliteJournalOptions,
} from "../../../src/storage/journal/sqlite-journal.ts";
import { FakeClock } from "../../fake-clock.ts";
import type { JournalModel, ModelWrite } from "./model.ts";

/** A folder that is removed after the test. */
export function testFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-journal-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A journal in a folder of its own, which is closed after the test. */
export async function openJournal(
  options: Partial<SqliteJournalOptions> & { readonly file?: string } = {},
): Promise<SqliteJournal> {
  const { file = join(testFolder(), "data"), ...rest } = options;
  const journal = await SqliteJournal.open(file, { clock: new FakeClock(), ...rest });
  onTestFinished(() => journal.close());
  return journal;
}

/** Commits one revision of these writes, to the model too. */
export async function write(
  journal: SqliteJournal,
  model: JournalModel,
  ...writes: readonly ModelWrite[]
): Promise<void> {
  const entry = model.write(writes);
  if (entry !== undefined) await journal.commit([entry]);
}

export function put(key: string, value: string | number = "value"): ModelWrite {
  return { key, value: typeof value === "number" ? Buffer.alloc(value, 120) : Buffer.from(value) };
}

export function del(key: string): ModelWrite {
  return { key, value: undefined };
}

/** All objects of the current state. */
export async function state(journal: SqliteJournal): Promise<StoredObject[]> {
  const objects: StoredObject[] = [];
  for await (const part of journal.objects()) objects.push(...part);
  return objects;
}

/** Without bounds. */
export const noBounds = { limit: 1_000_000, maxEvents: 1_000_000, maxBytes: 1e9 } as const;
