import { randomUUID } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fdatasync,
  openSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname } from "node:path";
import { backup, type DatabaseSync } from "node:sqlite";
import { setTimeout } from "node:timers/promises";
import { messageOf, systemCode } from "../../../base/errors.ts";
import { RecordReader } from "../record.ts";
import { DataFile } from "./data-file.ts";
import { JournalFailure, sqliteCode, sqliteCodes } from "./failures.ts";
import { checkFormat, openDatabase, openFailure, publish, refused } from "./open-file.ts";

/** Pages of one step of a backup, during which commits wait: a fraction of a millisecond. */
const stepPages = 64;

/** A backup is synced after every so many steps, so that its last sync, for which commits wait, is short. */
const stepsPerSync = 128;

/** How often a first step is tried, and the pause between, in milliseconds. */
const maxAttempts = 1_000;
const retryMs = 1;

/** A backup that runs. */
export class Backup {
  /** Settles when it has ended, and only the complete file is left, or nothing. Rejects with a JournalFailure. */
  readonly ended: Promise<void>;
  #isCancelled = false;

  constructor(db: DatabaseSync, path: string) {
    this.ended = this.#run(db, path);
  }

  cancel(): void {
    this.#isCancelled = true;
  }

  /**
   * Copies all pages. Returns false if no step was possible, as a commit was in progress: Node.js's backup() repeats such a step,
   * except the first one.
   */
  async #copy(
    db: DatabaseSync,
    draft: string,
    sync: BackgroundSync,
    isLastAttempt: boolean,
  ): Promise<boolean> {
    let hasBegun = false;
    const progress = (): void => {
      hasBegun = true;
      this.#throwIfCancelled();
      sync.step();
    };
    this.#throwIfCancelled();
    try {
      await backup(db, draft, { rate: stepPages, progress });
      return true;
    } catch (error) {
      const isBusy = [0, sqliteCodes.busy, sqliteCodes.locked].includes(sqliteCode(error) ?? -1);
      if (hasBegun || isLastAttempt || !isBusy) throw error;
      return false;
    }
  }

  #throwIfCancelled(): void {
    if (this.#isCancelled) throw refused("The backup was cancelled.");
  }

  async #run(db: DatabaseSync, path: string): Promise<void> {
    checkTarget(path);
    const draft = draftOf(path);
    let handle: number | undefined;
    try {
      handle = openSync(draft, "wx", 0o600);
      const sync = new BackgroundSync(handle);
      for (
        let attempt = 1;
        !(await this.#copy(db, draft, sync, attempt === maxAttempts));
        attempt++
      ) {
        await setTimeout(retryMs);
      }
      await sync.ended();
      publish(draft, path);
    } catch (error) {
      throw copyFailure(path, error);
    } finally {
      if (handle !== undefined) closeSync(handle);
      removeDraft(draft);
    }
  }
}

/** Writes what a file has to the disk while more is added, one sync at a time. */
class BackgroundSync {
  readonly #handle: number;
  #steps = 0;
  #running: Promise<void> | undefined;

  constructor(handle: number) {
    this.#handle = handle;
  }

  step(): void {
    if (++this.#steps % stepsPerSync !== 0 || this.#running !== undefined) return;
    this.#running = new Promise((resolve) => {
      // The last sync reports what fails.
      fdatasync(this.#handle, () => {
        this.#running = undefined;
        resolve();
      });
    });
  }

  async ended(): Promise<void> {
    await this.#running;
  }
}

/**
 * Copies a backup to a new data file, with another history id: what was written after the backup is not in it, so its
 * revisions are those of another history. Throws a JournalFailure.
 */
export function restore(from: string, to: string, historyId: string): void {
  checkTarget(to);
  if (existsSync(`${to}-wal`)) {
    throw refused(
      `${to}-wal has changes of another data file. Move it away, or name another file.`,
    );
  }
  if (existsSync(`${from}-wal`)) {
    throw refused(
      `${from} is the data file of a service, which is running or was killed: its newest changes are in ${from}-wal. ` +
        "Restore a backup instead.",
    );
  }
  const draft = draftOf(to);
  try {
    const isFile = statSync(from, { throwIfNoEntry: false })?.isFile() ?? false;
    if (!isFile) throw refused(`${from} is not a file, or does not exist. Name a backup.`);
    copyFileSync(from, draft, constants.COPYFILE_EXCL);
    chmodSync(draft, 0o600);
    const db = openDatabase(draft);
    try {
      checkFormat(draft, db);
      const data = new DataFile(draft, db, "full", Infinity);
      checkRecords(data);
      data.transact((numbers) => ({ ...numbers, historyId }));
    } finally {
      db.close();
    }
    publish(draft, to);
  } catch (error) {
    throw renamed(copyFailure(to, error), draft, from);
  } finally {
    removeDraft(draft);
  }
}

/** Checks every record: the backup may have been kept for long. */
function checkRecords({ db, file, index, numbers }: DataFile): void {
  const check = index.check(numbers.keys, numbers.lastId);
  while (check.next().done !== true);
  const statement = db.prepare("SELECT record FROM log");
  for (const { record } of statement.iterate()) {
    try {
      new RecordReader(record as Uint8Array).next();
    } catch (error) {
      throw refused(`${file} is damaged: ${messageOf(error)}. Restore another backup.`);
    }
  }
}

function checkTarget(path: string): void {
  if (existsSync(path)) throw refused(`${path} exists, and was left as it is. Name another file.`);
  if (existsSync(dirname(path))) return;
  throw refused(`The folder ${dirname(path)} does not exist. Create it, or name another one.`);
}

function draftOf(path: string): string {
  return `${path}.new-${randomUUID()}`;
}

function removeDraft(draft: string): void {
  for (const end of ["", "-journal", "-wal", "-shm"]) rmSync(draft + end, { force: true });
}

function copyFailure(path: string, error: unknown): JournalFailure {
  if (systemCode(error) === "EEXIST")
    return refused(`${path} exists, and was left as it is. Name another file.`);
  return openFailure(path, error);
}

/** The failure with the name that the user knows the file by. */
function renamed({ kind, message }: JournalFailure, draft: string, name: string): JournalFailure {
  return new JournalFailure(kind, message.replaceAll(draft, name));
}
