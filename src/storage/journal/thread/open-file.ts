import { randomUUID } from "node:crypto";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { messageOf, systemCode } from "../../../base/errors.ts";
import type { ThreadOptions } from "../messages.ts";
import { DataFile, pageBytes } from "./data-file.ts";
import { damaged, JournalFailure, readFailure, sqliteCode, sqliteCodes } from "./failures.ts";
import { emptyNumbers } from "./numbers.ts";
import { applicationId, createTables, formatVersion, textMark } from "./schema.ts";
import { checkWal } from "./wal-check.ts";

/** Opens the data file, or creates it with its folder. Throws a JournalFailure whose sentence names the file and says what to do. */
export function openDataFile(options: ThreadOptions): DataFile {
  const file = findFile(options);
  if (options.sync === "full") checkWal(file);
  const db = openDatabase(file);
  try {
    checkFormat(file, db);
    return new DataFile(file, db, options.sync);
  } catch (error) {
    db.close();
    throw openFailure(file, error);
  }
}

/** Creates the file if it is missing. Returns its own path: the write-ahead log is beside it, and not beside a link to it. */
function findFile({ file, historyId }: ThreadOptions): string {
  try {
    const stats = statSync(file, { throwIfNoEntry: false });
    if (stats === undefined) create(file, historyId);
    const path = realpathSync(file);
    if (stats !== undefined) checkFile(path, stats);
    return path;
  } catch (error) {
    throw openFailure(file, error);
  }
}

/** Opens it, and takes the lock that no other process gets meanwhile, on any path to the file. It ends with the process. */
export function openDatabase(file: string): DatabaseSync {
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(file, { timeout: 0 });
    db.exec("PRAGMA locking_mode = EXCLUSIVE");
    // The first read takes the lock of a file in WAL mode.
    db.prepare("SELECT count(*) FROM sqlite_schema").get();
    return db;
  } catch (error) {
    db?.close();
    throw openFailure(file, error);
  }
}

/** Throws a JournalFailure unless it is a data file of this program, in the format that this version writes. */
export function checkFormat(file: string, db: DatabaseSync): void {
  const pragma = (name: string) => Number(db.prepare(`PRAGMA ${name}`).get()?.[name]);
  if (pragma("application_id") !== applicationId) {
    throw refused(
      `${file} is a database of another program, and was left as it is. Name another file.`,
    );
  }
  const version = pragma("user_version");
  if (version > formatVersion) {
    throw refused(
      `The data file ${file} has format ${version}, and this version of watch-fanout reads formats up to ` +
        `${formatVersion}. Start the version that wrote it, or a newer one.`,
    );
  }
  // Formats before this one are migrated here, once there are any.
  if (version < formatVersion) throw damaged(file, `its format is ${version}, which never existed`);
}

/** Creates an empty data file in one step, so that a file that exists is never half of one. */
function create(file: string, historyId: string): void {
  const folder = dirname(file);
  const draft = `${file}.new-${randomUUID()}`;
  try {
    if (lstatSync(file, { throwIfNoEntry: false }) !== undefined) {
      throw refused(
        `${file} is a symbolic link to a file that is missing. Put the file back, or remove the link.`,
      );
    }
    if (!existsSync(folder)) mkdirSync(folder, { mode: 0o700 });
    if (statSync(`${file}-wal`, { throwIfNoEntry: false }) !== undefined) {
      throw refused(
        `${file}-wal has changes of a data file that is missing: ${file}. Put the file back, or move ${file}-wal away ` +
          "if its changes are not needed.",
      );
    }
    closeSync(openSync(draft, "wx", 0o600));
    const db = new DatabaseSync(draft);
    const body = JSON.stringify(emptyNumbers(historyId));
    db.exec(`PRAGMA page_size = ${pageBytes}; PRAGMA journal_mode = WAL; BEGIN; ${createTables}`);
    db.prepare("INSERT INTO numbers VALUES (1, ?, ?)").run(body, textMark(1, body));
    db.exec("COMMIT");
    db.close();
    publish(draft, file);
  } catch (error) {
    // Another process has created it.
    if (systemCode(error) !== "EEXIST") throw error;
  } finally {
    for (const end of ["", "-wal", "-shm"]) rmSync(draft + end, { force: true });
  }
}

/** Gives a complete file its name, unless that exists, and removes the name that it had. Survives a loss of power. */
export function publish(draft: string, file: string): void {
  syncPath(draft);
  try {
    linkSync(draft, file);
    rmSync(draft);
  } catch (error) {
    // Some file systems have no hard links.
    const isMissing = ["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS"].includes(systemCode(error));
    if (!isMissing || existsSync(file)) throw error;
    renameSync(draft, file);
  }
  syncPath(dirname(file));
}

/** Writes a file or a folder to the disk. */
export function syncPath(path: string): void {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Checks what SQLite would not report, or not in a sentence. */
function checkFile(file: string, stats: Stats): void {
  if (!stats.isFile()) throw refused(`${file} is not a file. Name a file for the data.`);
  if (stats.size === 0) {
    throw damaged(file, "it is empty, which a data file never is");
  }
  if (stats.nlink > 1 && !removeDraft(file, stats)) {
    throw refused(
      `The data file ${file} has ${stats.nlink} hard links. Its newest changes are in ${file}-wal, which the other ` +
        "names do not have, so a data file must have one name. Remove the others.",
    );
  }
  accessSync(file, constants.R_OK | constants.W_OK);
  accessSync(dirname(file), constants.R_OK | constants.W_OK | constants.X_OK);
}

/** Removes the first name of a file whose creation was interrupted at its end. Returns whether the file has one name then. */
function removeDraft(file: string, stats: Stats): boolean {
  const folder = dirname(file);
  for (const name of readdirSync(folder)) {
    if (!name.startsWith(`${basename(file)}.new-`)) continue;
    if (statSync(join(folder, name)).ino === stats.ino) rmSync(join(folder, name));
  }
  return statSync(file).nlink === 1;
}

/** What an opening failed with, as a sentence. */
export function openFailure(file: string, error: unknown): JournalFailure {
  if (error instanceof JournalFailure) return error;
  const code = systemCode(error);
  const sqlite = sqliteCode(error);
  if (sqlite === sqliteCodes.busy) {
    const pid = ownerOf(file);
    const owner = pid === String(process.pid) ? "this process" : `process ${pid}`;
    return refused(
      `The data file ${file} is in use by ${pid === undefined ? "another process" : owner}. ` +
        "End that process first, or name another file: a data file has one owner.",
    );
  }
  if (sqlite === sqliteCodes.notADatabase) {
    return refused(
      `${file} is not a data file of watch-fanout, or its beginning is damaged. Name another file, or restore a backup.`,
    );
  }
  if (sqlite === sqliteCodes.full || code === "ENOSPC") {
    return refused(`There is no room on the disk for the data file ${file}. Free some.`);
  }
  if (code === "ENOENT" && !existsSync(dirname(file))) {
    return refused(
      `The folder ${dirname(file)} can't be created, as its own folder does not exist. Create it for the data file ${file}.`,
    );
  }
  if (code === "EACCES" || code === "EPERM" || sqlite === sqliteCodes.cantOpen) {
    return refused(
      `The data file ${file} can't be opened: this user must be able to read and write the file and its folder ` +
        `(${messageOf(error)}).`,
    );
  }
  if (code === "EROFS" || sqlite === sqliteCodes.readOnly) {
    return refused(
      `The data file ${file} can't be written: it, its folder, or the file system is read-only.`,
    );
  }
  if (sqlite !== undefined) return readFailure(file, error);
  return refused(`The data file ${file} can't be opened: ${messageOf(error)}.`);
}

/** The process that has the lock, if the system says; undefined: it is not known. Opening the file would drop a lock of this one. */
function ownerOf(file: string): string | undefined {
  try {
    const { ino } = statSync(file);
    const locks = readFileSync("/proc/locks", "utf8").split("\n");
    const lock = locks.find((line) => line.includes(` WRITE `) && line.includes(`:${ino} `));
    const pid = lock?.split(/\s+/)[4];
    return pid === undefined || !(Number(pid) > 0) ? undefined : pid;
  } catch {
    return undefined;
  }
}

export function refused(message: string): JournalFailure {
  return new JournalFailure("refused", message);
}
