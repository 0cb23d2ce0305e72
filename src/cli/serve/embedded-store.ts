import { rm } from "node:fs/promises";
import { messageOf } from "../../base/errors.ts";
import type { Config, DataConfig } from "../../config/config.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { DataFileReport } from "../../server/admin/status/status.ts";
import { SqliteJournal } from "../../storage/journal/sqlite-journal.ts";
import { MemoryStore } from "../../storage/memory/memory-store.ts";
import { MeasuredJournal } from "../../telemetry/measured-journal.ts";
import type { ProcessContext } from "./process-context.ts";
import { StartError } from "./start-error.ts";

interface StoreFile {
  readonly path: string;
  readonly journal: MeasuredJournal;
  /** Why writes are refused: the file was moved, deleted or replaced. Undefined: it is in its place. */
  readonly detached: () => string | undefined;
}

/** The embedded store of a process, and the file that keeps it. */
export class EmbeddedStore {
  readonly store: MemoryStore;
  readonly #file: StoreFile | undefined;

  private constructor(store: MemoryStore, file?: StoreFile) {
    this.store = store;
    this.#file = file;
  }

  /**
   * Opens the store, with all that its file has. `onFailure` is called once, with a sentence, if it is not known any more what
   * the file has. Rejects with a StartError if the file can't be used.
   */
  static async open(
    { path, sync, historyMs, historyBytes, maxBytes }: DataConfig,
    { limits }: Pick<Config, "limits">,
    { clock, logger, meter }: Pick<ProcessContext, "clock" | "logger" | "meter">,
    onFailure: (message: string) => void,
  ): Promise<EmbeddedStore> {
    const { maxDeletedObjects, maxLeases: maxGrantedLeases } = limits;
    const limited = { clock, maxDeletedObjects, maxGrantedLeases };
    if (path === undefined) return new EmbeddedStore(new MemoryStore(limited));
    const bounds = { maxHistoryMs: historyMs, maxHistoryBytes: historyBytes, maxBytes };
    let problem: string | undefined;
    const onDetached = (found: string | undefined): void => {
      problem = found;
      if (found === undefined) logger.info({ file: path }, "the data file is in its place again");
      else logger.error({ file: path, problem }, "the data file is not in its place");
    };
    const options = { clock, sync, onDetached, ...bounds };
    const opened = await unlessUnusable(SqliteJournal.open(path, options));
    const isDetached = (): boolean => problem !== undefined;
    const journal = new MeasuredJournal(opened, maxBytes, clock, meter, isDetached);
    const onFault = (error: Error): void => onFailure(`--data: ${messageOf(error)}`);
    try {
      // Of a process that was killed while it made a backup.
      await rm(backupFolderOf(path), { recursive: true, force: true });
      const store = await unlessUnusable(MemoryStore.open({ ...limited, journal, onFault }));
      const { historyId, revision, bytes } = journal;
      logger.info({ file: path, revision, bytes, historyId }, "the embedded store is loaded");
      return new EmbeddedStore(store, { path, journal, detached: () => problem });
    } catch (error) {
      await journal.close();
      throw error;
    }
  }

  /** What backups are made of. Undefined: there is no file. */
  get journal(): MeasuredJournal | undefined {
    return this.#file?.journal;
  }

  /** The check of /readyz: without its file in its place the service still serves reads and watches. */
  readiness(): readonly ReadinessCheck[] {
    if (this.#file === undefined) return [];
    return [{ name: "data", failure: undefined, warning: this.#file.detached() }];
  }

  /** What the status shows of the file. Undefined: it has no file. */
  report(): DataFileReport | undefined {
    return this.#file && { path: this.#file.path, ...this.#file.journal.report() };
  }
}

/** The folder of the copy of a backup until it is sent. */
export function backupFolderOf(dataPath: string): string {
  return `${dataPath}.backup`;
}

async function unlessUnusable<T>(opening: Promise<T>): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    throw new StartError(`--data: ${messageOf(error)}`, { cause: error });
  }
}
