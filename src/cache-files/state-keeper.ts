import { randomUUID } from "node:crypto";
import type { Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { OutageLog } from "../base/logger.ts";
import { Turns } from "../base/turns.ts";
import { settledWithin, within } from "../base/wait.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import { type FileHead, fileHead } from "./blocks.ts";
import { Budget } from "./budget.ts";
import { type Disk, nodeDisk } from "./disk.ts";
import { FolderLock } from "./folder-lock.ts";
import type { FileKeeperOptions } from "./keeper-options.ts";
import type { KeptState, ReplacedState, StateKeeper } from "./kept-state.ts";
import { filesAmong, type Loading, loadState } from "./load-state.ts";
import type { LogFile } from "./log-file.ts";
import { LogSequence } from "./log-sequence.ts";
import { OwnFiles } from "./own-files.ts";
import { SnapshotWork } from "./snapshot-work.ts";

const mebibyte = 1024 ** 2;

/**
 * A new snapshot is written when the logs since the last one are half as large as it, within these bounds in bytes: a start
 * reads all of them.
 */
const leastLogBytes = 16 * mebibyte;
const mostLogBytes = 128 * mebibyte;

/** Size of a log at which the next one begins, so that logs whose events are too old can be deleted; in bytes. */
const largestLog = 32 * mebibyte;

/** As well as at this number of logs: each start begins one. */
const maxLogs = 32;

/** Maximum number of logs that are not closed: a disk that does not respond gets nothing more to do. */
const maxUnclosed = 4;

/** How long a start waits for the disk, in milliseconds. */
const loadMs = 60_000;

/** How long `close` waits for the disk, in milliseconds. */
const closeMs = 5_000;

/** How long after a failure of the disk it is tried again, doubled with each failure, in milliseconds. */
const firstRetryMs = 15_000;
const lastRetryMs = 10 * 60_000;

/** What the cache has. */
interface KnownState {
  historyId: string;
  revision: number;
  syncedAt: number;
}

/**
 * Keeps the state in files: see load-state.ts. Batches are appended to a log. When the logs are large, the next one begins,
 * and the state at its beginning is written as a new snapshot, after which the older files are deleted.
 *
 * If the disk fails, or is slower than the events for longer than the memory suffices, the log is broken off: the files
 * still have an older state. Later a new snapshot is tried.
 */
export class FileStateKeeper implements StateKeeper {
  readonly #options: FileKeeperOptions;
  readonly #disk: Disk;
  readonly #turns: Turns;
  readonly #outage: OutageLog;
  readonly #space: Budget;
  readonly #windowBytes: number;
  readonly #files: OwnFiles;
  readonly #logs: LogSequence;
  readonly #snapshots: SnapshotWork;
  #lock: FolderLock | undefined;
  #current: (() => Iterable<StoredObject>) | undefined;
  /** Undefined: nothing is known that may be kept. */
  #known: KnownState | undefined;
  /** Of the last file. */
  #number = 0;
  #lineage = "";
  /** Number of its first file. */
  #firstOfLineage = 0;
  #snapshotBytes = 0;
  /** Whether nothing is appended until the next snapshot. */
  #isBroken = true;
  #retry: Timer | undefined;
  #retryMs = firstRetryMs;
  #failures = 0;
  #closed: Promise<void> | undefined;

  constructor(options: FileKeeperOptions) {
    const { clock, logger, limits } = options;
    this.#options = options;
    this.#disk = options.disk ?? nodeDisk;
    this.#turns = new Turns(clock);
    this.#outage = new OutageLog(clock, logger);
    this.#space = new Budget(options.maxDiskBytes ?? 16 * 1024 * mebibyte, limits?.disk);
    const memory = new Budget(options.maxMemoryBytes ?? 16 * mebibyte, limits?.memory);
    this.#windowBytes = options.windowBytes ?? 64 * mebibyte;
    const { folder } = options;
    const [disk, space] = [this.#disk, this.#space];
    this.#files = new OwnFiles(disk, folder, space, this.#windowBytes);
    this.#logs = new LogSequence({
      ...{ disk, clock, memory, space, folder, files: this.#files },
      onBroken: (lineage, error) => {
        if (lineage === this.#lineage) this.#fail(error);
      },
    });
    this.#snapshots = new SnapshotWork({
      ...{ disk, turns: this.#turns, space, folder, files: this.#files },
      objectsBefore: (...log) => this.#objectsBefore(...log),
      onWritten: (number, bytes) => this.#written(number, bytes),
      onFailed: (error) => this.#fail(error),
    });
  }

  get failures(): number {
    return this.#failures;
  }

  async load(
    signal: AbortSignal,
    current?: () => Iterable<StoredObject>,
  ): Promise<KeptState | undefined> {
    this.#current = current;
    const { clock } = this.#options;
    const ending = new AbortController();
    const expire = (): never => {
      const error = new Error(`The disk did not respond within ${loadMs / 1_000} s.`);
      ending.abort(error);
      throw error;
    };
    const loading = this.#load(AbortSignal.any([signal, ending.signal]));
    try {
      return await within(loading, { signal, deadline: { clock, ms: loadMs, expire } });
    } catch (error) {
      signal.throwIfAborted();
      this.#fail(error);
      return undefined;
    }
  }

  replace({ historyId, revision, objects }: ReplacedState): void {
    const isOtherHistory = historyId === "" || historyId !== this.#known?.historyId;
    this.#known = { historyId, revision, syncedAt: this.#now() };
    if (isOtherHistory) this.#clear();
    if (this.#lock === undefined) return;
    if (this.#logs.unclosed > maxUnclosed) this.#fail(unresponsive());
    else this.#begin(objects);
  }

  append(batch: WatchBatch): void {
    const known = this.#known;
    if (known === undefined) return;
    const log = this.#openLog();
    const { revision } = batch;
    known.syncedAt = this.#now();
    if (revision !== undefined) known.revision = revision;
    if (log === undefined) return;
    log.append(batch, known.syncedAt);
    // Within an atomic batch there is no state.
    if (revision !== undefined && !this.#isBroken) this.#continueAfter(log);
  }

  identify(historyId: string): void {
    const known = this.#known;
    if (known === undefined) return;
    const log = this.#openLog();
    known.historyId = historyId;
    log?.identify(historyId);
  }

  invalidate(): void {
    this.#known = undefined;
    this.#clear();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #load(signal: AbortSignal): Promise<KeptState | undefined> {
    await this.#open();
    let unused: { readonly file: string; readonly problem: string } | undefined;
    const loaded = await loadState({
      ...this.#loading(signal),
      onUnused: (file, problem) => {
        unused ??= { file, problem };
      },
    });
    signal.throwIfAborted();
    const { folder, logger } = this.#options;
    if (unused !== undefined) {
      const kept = loaded === undefined ? "nothing is loaded" : "an older state is loaded";
      logger.warn({ folder, ...unused }, `a file of a kept state is not used; ${kept}`);
    }
    if (loaded === undefined) return undefined;
    const { lineage, snapshot, logs, ...state } = loaded;
    const { historyId, revision, syncedAt } = state;
    this.#known = { historyId, revision, syncedAt };
    this.#lineage = lineage;
    this.#firstOfLineage = logs[0]?.number ?? snapshot.number;
    this.#snapshotBytes = snapshot.bytes;
    this.#files.addFound("snapshot", snapshot.number, snapshot.bytes);
    for (const { number, bytes } of logs) {
      this.#files.addFound("log", number, bytes);
      if (number >= snapshot.number) this.#logs.addFound(bytes);
    }
    this.#isBroken = false;
    // What can't be deleted now is deleted with the next snapshot.
    await this.#files.deleteOthers().catch(() => {});
    return state;
  }

  /** Gets the folder for this process. Rejects if another one has it. */
  async #open(): Promise<void> {
    const { folder } = this.#options;
    await this.#disk.makeFolder(folder);
    try {
      this.#lock ??= await FolderLock.of(folder);
    } catch (error) {
      throw new Error(`The folder can't be locked for this process: ${messageOf(error)}`);
    }
    if (this.#closed !== undefined) {
      this.#lock.release();
      throw new Error("The keeper was closed.");
    }
    const files = filesAmong(await this.#disk.list(folder));
    this.#number = Math.max(this.#number, files.at(-1)?.number ?? 0);
  }

  #loading(signal: AbortSignal): Omit<Loading, "onUnused"> {
    const { folder, name, identity, maxEvents = 100_000 } = this.#options;
    const windowBytes = this.#windowBytes;
    const most = windowBytes === 0 ? 0 : maxEvents;
    const [disk, turns] = [this.#disk, this.#turns];
    return { ...{ disk, folder, name, identity, windowBytes, turns, signal }, maxEvents: most };
  }

  /** The log to append to; undefined: nothing is appended. */
  #openLog(): LogFile | undefined {
    if (this.#logs.current === undefined && !this.#isBroken) this.#beginLog();
    return this.#logs.current;
  }

  /** Writes a new state, on which nothing follows that was kept before. */
  #begin(objects: Iterable<StoredObject>): void {
    this.#isBroken = false;
    this.#lineage = randomUUID();
    this.#snapshots.giveUp();
    const head = this.#beginLog();
    this.#firstOfLineage = this.#number;
    if (head !== undefined) this.#schedule(head, objects);
  }

  /** Begins the next log at the known revision. Undefined if that can't be. */
  #beginLog(): FileHead | undefined {
    const known = this.#known;
    if (known === undefined) return undefined;
    const { name, identity } = this.#options;
    const head = fileHead({ name, identity, lineage: this.#lineage, ...known });
    this.#logs.begin(++this.#number, head);
    return head;
  }

  /** Begins the next log if this one is large, and the next snapshot if all are. */
  #continueAfter(log: LogFile): void {
    const size = this.#logs.bytes;
    const least = this.#options.leastLogBytes ?? leastLogBytes;
    const most = Math.max(least, Math.min(this.#snapshotBytes / 2, mostLogBytes));
    const isNext = (size > most || this.#logs.endedCount > maxLogs) && !this.#snapshots.isWriting;
    if (!isNext && log.bytes < largestLog) return;
    const head = this.#beginLog();
    if (isNext && head !== undefined) this.#schedule(head, this.#current?.());
  }

  /** The state at the beginning of the current log is written next. */
  #schedule(head: FileHead, objects: Iterable<StoredObject> | undefined): void {
    this.#logs.beginSnapshot();
    this.#snapshots.write(this.#number, head, objects);
  }

  /** Deletes what is there, as it must not be loaded again, and appends nothing to it. */
  #clear(): void {
    this.#abandon();
    this.#snapshots.mustClear(this.#number);
    if (this.#lock !== undefined) this.#snapshots.clear();
  }

  /** Appends nothing more until the next snapshot, and gives up the one that is being written. */
  #abandon(): void {
    this.#logs.abandon();
    this.#isBroken = true;
    this.#snapshots.giveUp();
  }

  async #written(number: number, bytes: number): Promise<void> {
    this.#snapshotBytes = bytes;
    this.#retryMs = firstRetryMs;
    this.#outage.ended("the state is kept on disk again");
    await this.#files.deleteBefore(number, this.#firstOfLineage);
  }

  /** The objects at the beginning of a log, from the files before it. */
  async #objectsBefore(
    number: number,
    head: FileHead,
    signal: AbortSignal,
  ): Promise<readonly StoredObject[]> {
    await this.#logs.closed;
    const before = await loadState({
      ...this.#loading(signal),
      ...{ windowBytes: 0, below: number, onUnused: () => {} },
    });
    if (before?.lineage === head.lineage && before.revision === head.revision)
      return before.objects;
    throw new Error("The files do not have the state that was written.");
  }

  /** Appends nothing more. What is on disk stays, and a new snapshot is tried later. */
  #fail(error: unknown): void {
    this.#abandon();
    this.#failures++;
    const problem = messageOf(error);
    const { folder } = this.#options;
    this.#outage.failed(problem, { folder, problem }, "can't keep the newest state on disk");
    if (this.#closed !== undefined || this.#current === undefined) return;
    this.#retry ??= this.#options.clock.setTimeout(() => {
      this.#retry = undefined;
      void this.#tryAgain();
    }, this.#retryMs);
    this.#retryMs = Math.min(this.#retryMs * 2, lastRetryMs);
  }

  /** Never rejects. */
  async #tryAgain(): Promise<void> {
    try {
      if (this.#snapshots.isRunning || this.#logs.unclosed > 0) throw unresponsive();
      if (this.#lock === undefined) await this.#open();
      this.#snapshots.clear();
      // Meanwhile it may have been closed, invalidated or replaced.
      const isWanted = this.#isBroken && this.#closed === undefined && this.#known !== undefined;
      if (isWanted && this.#current !== undefined) this.#begin(this.#current());
    } catch (error) {
      this.#fail(error);
    }
  }

  async #close(): Promise<void> {
    this.#retry?.cancel();
    const { clock } = this.#options;
    this.#logs.end(true);
    this.#known = undefined;
    if (this.#lock !== undefined) this.#snapshots.clear();
    const done = Promise.allSettled([this.#logs.closed, this.#snapshots.done]);
    await settledWithin(done, clock, closeMs);
    this.#snapshots.giveUp();
    this.#lock?.release();
    this.#lock = undefined;
  }

  /** Not before the epoch, as a state may be of any age. */
  #now(): number {
    return Math.max(0, (this.#options.now ?? Date.now)());
  }
}

function unresponsive(): Error {
  return new Error("The disk does not respond.");
}
