import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import type { Clock, Timer } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { keyBytes } from "../../model/key-bytes.ts";
import type { StoredObject } from "../../model/object.ts";
import { encodeCommit } from "./encode-commit.ts";
import type {
  ChangesRequest,
  Journal,
  JournalEntry,
  KeptChanges,
  KeptHistory,
  KeptHistoryRequest,
  KeptLease,
  KeptPage,
  KeptPageRequest,
  KeptRequest,
} from "./journal.ts";
import { JournalCalls } from "./journal-calls.ts";
import type { DataSync, FoundRecords, JournalFacts, Reply } from "./messages.ts";
import { readChanges, readHistory, readObjects, readState } from "./read-records.ts";
import { damageText, RecordFault } from "./record.ts";

/** How often the history expires by age, and the place of the file is checked, in milliseconds. */
const tickMs = 1_000;

export interface SqliteJournalOptions {
  readonly clock: Clock;
  /**
   * `full` (default): a commit that has resolved survives a loss of power. `off`: it survives the end of the process, also a
   * kill; a loss of power can lose the commits since the last checkpoint, 8 MiB and one commit, and leaves a state that was once
   * current.
   */
  readonly sync?: DataSync;
  /** How long the history is kept, in milliseconds of use of the file. Default: without this limit. */
  readonly maxHistoryMs?: number;
  /** Size of the history, without the current state, in bytes. Default: without this limit. */
  readonly maxHistoryBytes?: number;
  /** Size of the file in bytes, at least 1 MiB. The write-ahead log is beside it: the pages of one commit and 8 MiB more. Default: without this limit. */
  readonly maxBytes?: number;
  /**
   * Called when the file, or its write-ahead log, is found to be moved, deleted or replaced while it is in use, with sentences
   * that say what to do, and with undefined when it is back. Meanwhile commits reject with UPSTREAM_UNAVAILABLE, and reads and
   * backups have all that was kept.
   */
  readonly onDetached?: (problem: string | undefined) => void;
}

/**
 * A Journal in one file: an SQLite database, which a thread reads and writes, so that a slow disk never stops the event loop.
 *
 * The file has one owner: a second journal on it, in any process and on any path, is refused.
 */
export class SqliteJournal implements Journal {
  readonly #clock: Clock;
  readonly #calls: JournalCalls;
  readonly #openedAt: number;
  readonly #onDetached: SqliteJournalOptions["onDetached"];
  #facts: JournalFacts;
  #timer: Timer | undefined;
  #ticking: Promise<void> | undefined;
  #closing: Promise<void> | undefined;

  /**
   * Opens the file, or creates it, with its folder if only that is missing. Rejects with an Error whose sentence says what is
   * wrong with which file and what to do.
   */
  static async open(
    file: string,
    options: SqliteJournalOptions,
    signal?: AbortSignal,
  ): Promise<SqliteJournal> {
    const { sync = "full", maxHistoryMs = Infinity, maxHistoryBytes = Infinity } = options;
    const { maxBytes = Infinity, clock } = options;
    const calls = new JournalCalls({
      type: "journal",
      options: {
        ...{ file: resolve(file), sync, historyId: randomUUID() },
        ...{ maxHistoryMs, maxHistoryBytes, maxBytes },
      },
    });
    const { facts } = await calls.started(signal);
    return new SqliteJournal(clock, calls, facts as JournalFacts, options.onDetached);
  }

  private constructor(
    clock: Clock,
    calls: JournalCalls,
    facts: JournalFacts,
    onDetached: SqliteJournalOptions["onDetached"],
  ) {
    this.#clock = clock;
    this.#onDetached = onDetached;
    this.#calls = calls;
    this.#facts = facts;
    this.#openedAt = clock.now();
    this.#tick();
  }

  get historyId(): string {
    return this.#facts.historyId;
  }

  get revision(): number {
    return this.#facts.revision;
  }

  get oldest(): number {
    return this.#facts.oldest;
  }

  get bytes(): number {
    return this.#facts.bytes;
  }

  async *objects(signal?: AbortSignal): AsyncGenerator<readonly StoredObject[], void, void> {
    let after: Buffer | undefined;
    // The next part is read while this one is processed.
    let next: Promise<FoundRecords> | undefined = this.#read(
      { type: "objects", after: undefined },
      signal,
    );
    while (next !== undefined) {
      const { records, nextKey }: FoundRecords = await next;
      next = nextKey && this.#read({ type: "objects", after: nextKey }, signal);
      next?.catch(() => {});
      const last = after;
      const part = this.#checked(() => readState(records, last));
      after = part.last ?? after;
      if (part.objects.length > 0) yield part.objects;
    }
  }

  async leases(): Promise<readonly KeptLease[]> {
    return (await this.#call({ type: "leases" })).leases ?? [];
  }

  async requests(): Promise<readonly KeptRequest[]> {
    return (await this.#call({ type: "requests" })).requests ?? [];
  }

  async commit(entries: readonly JournalEntry[]): Promise<void> {
    const call = encodeCommit(entries, this.#elapsedMs);
    const moved = [call.records.buffer, call.replaced.buffer];
    this.#learn(await this.#calls.call(call, undefined, moved));
  }

  async changesAfter(request: ChangesRequest): Promise<readonly KeptChanges[]> {
    const { after, upTo, maxEvents, maxBytes, signal } = request;
    const found = await this.#read({ type: "changes", after, upTo, maxEvents, maxBytes }, signal);
    return this.#checked(() => readChanges(found.records));
  }

  async page(request: KeptPageRequest): Promise<KeptPage> {
    const { revision, limit, maxBytes, signal } = request;
    const to = request.to === undefined ? undefined : keyBytes(request.to);
    const from = keyBytes(request.from);
    const found = await this.#read({ type: "page", revision, from, to, limit, maxBytes }, signal);
    const objects = this.#checked(() => readObjects(found.records));
    return { objects, hasMore: found.hasMore === true };
  }

  async history(request: KeptHistoryRequest): Promise<KeptHistory> {
    const { upTo, limit, maxBytes, signal } = request;
    const key = keyBytes(request.key);
    const found = await this.#read({ type: "history", key, upTo, limit, maxBytes }, signal);
    return { events: this.#checked(() => readHistory(found.records)), next: found.next };
  }

  async backup(path: string, signal?: AbortSignal): Promise<void> {
    await this.#calls.callToEnd({ type: "backup", path: resolve(path) }, signal);
  }

  close(): Promise<void> {
    this.#timer?.cancel();
    this.#closing ??= this.#calls.close();
    return this.#closing;
  }

  get #elapsedMs(): number {
    return this.#clock.now() - this.#openedAt;
  }

  async #read(
    call: Parameters<JournalCalls["call"]>[0],
    signal?: AbortSignal,
  ): Promise<FoundRecords> {
    const { found } = await this.#call(call, signal);
    if (found === undefined)
      throw new Error("The thread of the journal has answered another call.");
    return found;
  }

  async #call(call: Parameters<JournalCalls["call"]>[0], signal?: AbortSignal): Promise<Reply> {
    return this.#learn(await this.#calls.call(call, signal));
  }

  /** What was read. Throws a WatchFanoutError with INTERNAL if that is damaged. */
  #checked<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof RecordFault)) throw error;
      throw new WatchFanoutError("INTERNAL", damageText(this.#calls.file, error.message));
    }
  }

  #learn(reply: Reply): Reply {
    if (reply.facts === undefined) return reply;
    const { detached } = this.#facts;
    this.#facts = reply.facts;
    if (reply.facts.detached !== detached) this.#onDetached?.(reply.facts.detached);
    return reply;
  }

  #tick(): void {
    this.#timer = this.#clock.setTimeout(() => {
      const tick = { type: "tick", elapsedMs: this.#elapsedMs } as const;
      // One at a time, however slow the disk is. What fails is reported by the next commit.
      this.#ticking ??= this.#call(tick)
        .catch(() => {})
        .then(() => {
          this.#ticking = undefined;
        });
      this.#tick();
    }, tickMs);
  }
}

/**
 * Copies a backup to a new data file, whose history has a new id. Rejects with an Error with a sentence if the backup is not
 * one, or is damaged, or the new file exists.
 */
export async function restoreBackup(from: string, to: string, signal?: AbortSignal): Promise<void> {
  const calls = new JournalCalls({
    ...{ type: "restore", from: resolve(from), to: resolve(to), historyId: randomUUID() },
  });
  await calls.started(signal);
}
