import { join } from "node:path";
import type { FileHead } from "./blocks.ts";
import { LogFile, type LogWriting } from "./log-file.ts";
import type { OwnFiles } from "./own-files.ts";

interface LogSequenceDeps extends Omit<LogWriting, "onBroken"> {
  readonly folder: string;
  readonly files: OwnFiles;
  /** A log of this lineage ends before what was appended. */
  readonly onBroken: (lineage: string, error: unknown) => void;
}

/** The logs of a cache, one after another: the one that is appended to, and those before it that are not closed yet. */
export class LogSequence {
  readonly #deps: LogSequenceDeps;
  #current: LogFile | undefined;
  /** Of the logs since the last snapshot, without the current one. */
  #endedBytes = 0;
  #endedCount = 0;
  #unclosed = 0;
  #closed: Promise<unknown> = Promise.resolve();

  constructor(deps: LogSequenceDeps) {
    this.#deps = deps;
  }

  /** The one to append to; undefined: nothing is appended. */
  get current(): LogFile | undefined {
    return this.#current;
  }

  /** Size of the logs since the last snapshot, in bytes. */
  get bytes(): number {
    return this.#endedBytes + (this.#current?.bytes ?? 0);
  }

  /** Number of ended logs since the last snapshot. */
  get endedCount(): number {
    return this.#endedCount;
  }

  /** Number of ended logs that are not closed yet: the disk is slower, or does not respond. */
  get unclosed(): number {
    return this.#unclosed;
  }

  /** Resolves when all ended logs are closed. */
  get closed(): Promise<unknown> {
    return this.#closed;
  }

  /** Counts a log that was there before. */
  addFound(bytes: number): void {
    this.#endedBytes += bytes;
    this.#endedCount++;
  }

  /** Ends the current log, and begins the next one. */
  begin(number: number, head: FileHead): void {
    this.end();
    const { folder, files, onBroken, ...writing } = this.#deps;
    const log = new LogFile(join(folder, `${number}.log`), head, {
      ...writing,
      onBroken: (error) => onBroken(head.lineage, error),
    });
    files.add("log", number, () => log.writtenBytes);
    this.#current = log;
  }

  /** Writes the rest of the current log. `isSynced`: it survives a loss of power. */
  end(isSynced: boolean = false): void {
    const log = this.#current;
    if (log === undefined) return;
    this.#current = undefined;
    this.addFound(log.bytes);
    this.#unclosed++;
    const closed = log.end(isSynced).finally(() => this.#unclosed--);
    this.#closed = Promise.all([this.#closed, closed]);
  }

  /** Ends the current log without the rest. */
  abandon(): void {
    this.#current?.abandon();
    this.end();
  }

  /** A snapshot begins where the current log does. */
  beginSnapshot(): void {
    this.#endedBytes = 0;
    this.#endedCount = 0;
  }
}
