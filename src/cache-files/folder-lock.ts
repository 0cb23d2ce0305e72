import { open } from "node:fs/promises";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { systemCode } from "../base/errors.ts";

/**
 * The right of one process to write into a folder. It is an exclusive lock of the operating system on an empty file, which
 * ends with the process, however that ends. Node.js has no function for it, but SQLite takes such locks on its files, and
 * keeps users in one process apart as well.
 */
export class FolderLock {
  readonly #database: DatabaseSync;

  private constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /** Locks the folder. Rejects if another user has it, or if it can't be locked. */
  static async of(folder: string): Promise<FolderLock> {
    const { DatabaseSync } = await import("node:sqlite");
    const path = join(folder, "lock");
    await create(path);
    const database = new DatabaseSync(path);
    try {
      database.exec("PRAGMA busy_timeout = 0; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
      return new FolderLock(database);
    } catch (error) {
      database.close();
      throw error;
    }
  }

  release(): void {
    this.#database.close();
  }
}

/**
 * Creates the file, for this user only, unless it exists. One that exists must not be opened here: the locks of a process on
 * a file end when the process closes it, however often it is open.
 */
async function create(path: string): Promise<void> {
  try {
    await (await open(path, "wx", 0o600)).close();
  } catch (error) {
    if (systemCode(error) !== "EEXIST") throw error;
  }
}
