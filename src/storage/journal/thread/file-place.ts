import { statSync } from "node:fs";

/**
 * Notices that the file in use, or its write-ahead log, is not the one at its path any more: what is written then, a restart
 * does not find.
 */
export class FilePlace {
  /** As it is configured, which may be a link. */
  readonly #path: string;
  readonly #wal: string;
  readonly #file: string | undefined;
  readonly #walFile: string | undefined;

  /** Both files are the ones in use now. `wal`: path of the write-ahead log. */
  constructor(path: string, wal: string) {
    this.#path = path;
    this.#wal = wal;
    this.#file = identityOf(path);
    this.#walFile = identityOf(wal);
  }

  /** What is wrong and what to do, in sentences; undefined: nothing. Takes some microseconds. */
  problem(): string | undefined {
    const refused = "writes are refused, as a restart would not have them";
    const file = identityOf(this.#path);
    if (file !== this.#file) {
      const what = file === absent ? "was moved or deleted" : "was replaced by another file";
      return (
        `The data file ${this.#path} ${what} while it is in use: ${refused}. Put it back, or run ` +
        "watch-fanout backup, stop the service, and restore that backup."
      );
    }
    if (identityOf(this.#wal) === this.#walFile) return undefined;
    return (
      `${this.#wal} was moved, deleted or replaced while it is in use: ${refused}. The data file ${this.#path} has ` +
      `all that was acknowledged: stop the service, remove ${this.#wal} if it is there, and start it again.`
    );
  }
}

const absent = "absent";

/** What identifies the file at a path; `absent`: no file is there; undefined: the system does not say. */
function identityOf(path: string): string | undefined {
  try {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? absent : `${stats.dev}:${stats.ino}`;
  } catch {
    return undefined;
  }
}
