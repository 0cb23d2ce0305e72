import { join } from "node:path";
import type { StoredObject } from "../model/object.ts";
import type { FileHead } from "./blocks.ts";
import type { OwnFiles } from "./own-files.ts";
import { type SnapshotWriting, writeSnapshot } from "./snapshot-file.ts";

interface SnapshotWorkDeps extends Omit<SnapshotWriting, "signal"> {
  readonly folder: string;
  readonly files: OwnFiles;
  /** Resolves to the objects at the beginning of a log, from the files before it. */
  readonly objectsBefore: (
    number: number,
    head: FileHead,
    signal: AbortSignal,
  ) => Promise<readonly StoredObject[]>;
  /** Called once a snapshot has its name, with its size in bytes. The work ends if it rejects. */
  readonly onWritten: (number: number, bytes: number) => Promise<void>;
  readonly onFailed: (error: unknown) => void;
}

/** A snapshot that is written next. */
interface PendingSnapshot {
  readonly number: number;
  readonly head: FileHead;
  /** Undefined: they are read from the files before. */
  readonly objects: Iterable<StoredObject> | undefined;
  /** Aborted to give it up. */
  readonly writing: AbortController;
}

/** Writes the snapshots of a cache and deletes what must not be loaded again, one after the other. */
export class SnapshotWork {
  readonly #deps: SnapshotWorkDeps;
  #pending: PendingSnapshot | undefined;
  /** Of the snapshot that is pending or being written; undefined: none is. */
  #writing: AbortController | undefined;
  /** Files up to this number must not be loaded again, and are deleted. */
  #clearUpTo = 0;
  #isRunning = false;
  #done: Promise<void> = Promise.resolve();

  constructor(deps: SnapshotWorkDeps) {
    this.#deps = deps;
  }

  /** Whether a snapshot is pending or being written. */
  get isWriting(): boolean {
    return this.#writing !== undefined;
  }

  /** Whether anything is being written or deleted. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Resolves when there is nothing left to do. Never rejects. */
  get done(): Promise<void> {
    return this.#done;
  }

  /** Writes the state at the beginning of a log, in place of what is pending. */
  write(number: number, head: FileHead, objects: Iterable<StoredObject> | undefined): void {
    this.#writing = new AbortController();
    this.#pending = { number, head, objects, writing: this.#writing };
    this.#start();
  }

  /** Gives up what is pending or being written. */
  giveUp(): void {
    this.#pending = undefined;
    this.#writing?.abort();
  }

  /** The files up to this number have to be deleted, once `clear` is called. */
  mustClear(upTo: number): void {
    this.#clearUpTo = upTo;
  }

  /** Deletes what has to be deleted, if there is anything. */
  clear(): void {
    if (this.#clearUpTo > 0) this.#start();
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#done = this.#run();
  }

  async #run(): Promise<void> {
    try {
      while (this.#clearUpTo > 0 || this.#pending !== undefined) {
        const cleared = this.#clearUpTo;
        const next = this.#pending;
        if (cleared > 0) {
          await this.#deps.files.deleteUpTo(cleared);
          if (this.#clearUpTo === cleared) this.#clearUpTo = 0;
        } else if (next !== undefined) {
          this.#pending = undefined;
          await this.#write(next);
        }
      }
    } catch (error) {
      this.#deps.onFailed(error);
    } finally {
      this.#isRunning = false;
    }
  }

  async #write({ number, head, objects, writing }: PendingSnapshot): Promise<void> {
    const { disk, turns, space, folder, files, objectsBefore, onWritten } = this.#deps;
    const { signal } = writing;
    try {
      const written = objects ?? (await objectsBefore(number, head, signal));
      const path = join(folder, `${number}.new`);
      const bytes = await writeSnapshot({ disk, turns, space, signal }, path, head, written);
      const named = disk.rename(path, join(folder, `${number}.snapshot`));
      await named.catch(() => space.release(bytes));
      await named;
      files.add("snapshot", number, () => bytes);
      await disk.syncFolder(folder);
      if (!signal.aborted) await onWritten(number, bytes);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      if (this.#writing === writing) this.#writing = undefined;
    }
  }
}
