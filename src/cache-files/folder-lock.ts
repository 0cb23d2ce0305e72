import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";

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
    const database = new DatabaseSync(join(folder, "lock"));
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
