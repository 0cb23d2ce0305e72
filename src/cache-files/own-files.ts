import { join } from "node:path";
import type { Budget } from "./budget.ts";
import type { Disk } from "./disk.ts";
import { type FileName, filesAmong } from "./load-state.ts";

interface OwnFile extends FileName {
  /** Its size on the disk, in bytes. */
  readonly bytes: () => number;
}

/** Maximum number of logs that are only there for their events. */
const maxOlderLogs = 32;

/** The files of a cache that are in use, and what they take of the disk. */
export class OwnFiles {
  readonly #disk: Disk;
  readonly #folder: string;
  readonly #space: Budget;
  readonly #windowBytes: number;
  #files: OwnFile[] = [];

  /** `windowBytes`: logs are needed for their events up to this size, about. */
  constructor(disk: Disk, folder: string, space: Budget, windowBytes: number) {
    this.#disk = disk;
    this.#folder = folder;
    this.#space = space;
    this.#windowBytes = windowBytes;
  }

  /** Adds a file, whose bytes are counted when they are written. */
  add(kind: "snapshot" | "log", number: number, bytes: () => number): void {
    this.#files.push({ name: `${number}.${kind}`, number, kind, bytes });
  }

  /** Adds a file that was there before. */
  addFound(kind: "snapshot" | "log", number: number, bytes: number): void {
    this.add(kind, number, () => bytes);
    this.#space.count(bytes);
  }

  /** Deletes all that were not added. */
  deleteOthers(): Promise<void> {
    const used = new Set(this.#files.map(({ name }) => name));
    return this.#delete(({ name }) => used.has(name));
  }

  deleteUpTo(last: number): Promise<void> {
    return this.#delete(({ number }) => number > last);
  }

  /** Deletes what is not needed with this snapshot. `first`: number of the first file whose events lead to it. */
  deleteBefore(snapshot: number, first: number): Promise<void> {
    return this.#delete(({ kind, number }) => {
      if (number >= snapshot) return true;
      return kind === "log" && number >= first && this.#hasNeededEvents(number);
    });
  }

  #hasNeededEvents(log: number): boolean {
    const newer = this.#files.filter(({ kind, number }) => kind === "log" && number > log);
    const bytes = newer.reduce((sum, file) => sum + file.bytes(), 0);
    return bytes < this.#windowBytes && newer.length < maxOlderLogs;
  }

  /** Deletes the files of the cache for which `isKept` is false, snapshots first: without them nothing is loaded. */
  async #delete(isKept: (file: FileName) => boolean): Promise<void> {
    const found = filesAmong(await this.#disk.list(this.#folder));
    const deleted = found.filter((file) => !isKept(file));
    for (const kind of ["snapshot", "new", "log"]) {
      for (const { name } of deleted.filter((file) => file.kind === kind)) {
        await this.#disk.remove(join(this.#folder, name));
      }
    }
    const names = new Set(deleted.map(({ name }) => name));
    for (const file of this.#files) if (names.has(file.name)) this.#space.release(file.bytes());
    this.#files = this.#files.filter(({ name }) => !names.has(name));
  }
}
