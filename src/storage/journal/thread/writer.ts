import type { StatementSync } from "node:sqlite";
import { messageOf } from "../../../base/errors.ts";
import type { KeptLease, KeptRequest } from "../journal.ts";
import type { CommitCall, SentEntry } from "../messages.ts";
import { RecordReader, recordCost } from "../record.ts";
import { type DataFile, pageBytes } from "./data-file.ts";
import { JournalFailure, readFailure, sqliteCode, sqliteCodes } from "./failures.ts";
import { type JournalNumbers, plusRow } from "./numbers.ts";
import type { Retention } from "./retention.ts";
import { keyMark } from "./schema.ts";

/** Requests with an id that are kept. The oldest are dropped. */
const maxRequests = 10_000;

/** Part of the pages that only deletions may use, and the least number. */
const reservedPart = 1 / 32;
const minReservedPages = 64;

/** SQLite's own limit. */
const maxPageCount = 0xffff_fffe;

/**
 * Steps of removing history that a commit without room waits for, of some milliseconds each. Not a time, as a slow disk would
 * make a store look full that is not.
 */
const maxRoomSteps = 200;

/** Writes commits to the data file. */
export class JournalWriter {
  readonly #data: DataFile;
  readonly #retention: Retention;
  readonly #insertRecord: StatementSync;
  readonly #insertKey: StatementSync;
  /** Maximum size of the file in pages, and that for commits which put objects. */
  readonly #maxPages: number;
  readonly #maxPutPages: number;
  #allowedPages = 0;
  /** Why nothing can be written any more. */
  #fault: JournalFailure | undefined;

  constructor(data: DataFile, retention: Retention, maxBytes: number) {
    this.#data = data;
    this.#retention = retention;
    this.#insertRecord = data.db.prepare("INSERT INTO log VALUES (?, ?)");
    this.#insertKey = data.db.prepare("INSERT INTO keys VALUES (?, ?, ?)");
    this.#maxPages = Math.max(2, Math.min(Math.floor(maxBytes / pageBytes), maxPageCount));
    const reserved = Math.max(minReservedPages, Math.ceil(this.#maxPages * reservedPart));
    this.#maxPutPages = Math.max(1, this.#maxPages - reserved);
    this.#allow(this.#maxPages);
  }

  /** Whether the file is so full that the history has to give way. */
  get isNearlyFull(): boolean {
    return this.#maxPages < maxPageCount && this.#data.usedPages > this.#maxPutPages * 0.9;
  }

  /**
   * Keeps all of the call, or nothing. Throws a JournalFailure: `full` if there is no room, `fault` if it is not known what is
   * kept.
   */
  commit(call: CommitCall): void {
    if (this.#fault !== undefined) throw this.#fault;
    let steps = maxRoomSteps;
    for (;;) {
      try {
        this.#allow(hasPuts(call) ? this.#maxPutPages : this.#maxPages);
        this.#data.transact((numbers) => this.#apply(call, numbers));
        return;
      } catch (error) {
        if (sqliteCode(error) !== sqliteCodes.full) throw this.#failed(error);
        const isAtLimit = this.#isAtLimit(call);
        this.#allow(this.#maxPages);
        const used = isAtLimit ? this.#removeHistory(call, steps) : 0;
        if (used === 0) throw this.#full(isAtLimit);
        steps -= used;
      } finally {
        this.#allow(this.#maxPages);
      }
    }
  }

  /** Removes history until the call may have room, in at most so many steps. Returns their number. */
  #removeHistory(call: CommitCall, maxSteps: number): number {
    const most = (hasPuts(call) ? this.#maxPutPages : this.#maxPages) - leastPages(call);
    let steps = 0;
    while (steps < maxSteps && this.#removeStep()) {
      steps++;
      if (this.#data.usedPages <= most) break;
    }
    return steps;
  }

  /** Returns whether there was any history. */
  #removeStep(): boolean {
    try {
      return this.#retention.clean(true);
    } catch (error) {
      if (sqliteCode(error) === sqliteCodes.full) return false;
      throw this.#failed(error);
    }
  }

  #apply(call: CommitCall, before: JournalNumbers): JournalNumbers {
    const reader = new RecordReader(call.records);
    let numbers = before;
    let change = 0;
    for (const entry of call.entries) {
      if (entry.type === "changes") {
        if (entry.revision !== numbers.revision + 1) {
          throw new RangeError(`revision ${entry.revision} does not follow ${numbers.revision}`);
        }
        numbers = { ...this.#addRecords(reader, entry.count, call.replaced, change, numbers) };
        numbers = { ...numbers, revision: entry.revision };
        change += entry.count;
        if (entry.request !== undefined) numbers = this.#addRequest(entry.request, numbers);
      } else numbers = this.#applySmall(entry, numbers);
    }
    return this.#retention.observe(numbers, call.elapsedMs);
  }

  #addRecords(
    reader: RecordReader,
    count: number,
    replaced: Float64Array,
    first: number,
    numbers: JournalNumbers,
  ): JournalNumbers {
    let { lastId, totalCost, currentCost, keys } = numbers;
    for (let i = 0; i < count; i++) {
      if (!reader.next()) throw new RangeError("a commit has fewer records than changes");
      const { bytes, start, end, key, isDeleted } = reader;
      const id = ++lastId;
      const mark = keyMark(key, id, isDeleted);
      this.#insertRecord.run(id, bytes.subarray(start, end));
      this.#insertKey.run(key, id, mark);
      keys = plusRow(keys, id, mark);
      const cost = recordCost(end - start, key.length);
      totalCost += cost;
      currentCost += (isDeleted ? 0 : cost) - (replaced[first + i] as number);
    }
    return { ...numbers, lastId, totalCost, currentCost, keys };
  }

  #applySmall(
    entry: Exclude<SentEntry, { type: "changes" }>,
    numbers: JournalNumbers,
  ): JournalNumbers {
    const { leases } = this.#data;
    switch (entry.type) {
      case "request":
        return this.#addRequest(entry.request, numbers);
      case "lease":
        return {
          ...numbers,
          leases: leases.put(numbers.leases, entry.lease.id, leaseText(entry.lease)),
        };
      case "lease ended":
        return { ...numbers, leases: leases.delete(numbers.leases, entry.id) };
      case "compacted": {
        const oldest = Math.min(entry.revision, numbers.revision);
        return { ...numbers, oldest: Math.max(numbers.oldest, oldest) };
      }
      case "history":
        return { ...numbers, historyId: entry.historyId };
    }
  }

  #addRequest(request: KeptRequest, numbers: JournalNumbers): JournalNumbers {
    const lastRequest = numbers.lastRequest + 1;
    const rows = this.#data.requests;
    const sum = rows.put(numbers.requests, lastRequest, JSON.stringify(request));
    return { ...numbers, lastRequest, requests: rows.delete(sum, lastRequest - maxRequests) };
  }

  /** The pages that the file may have. It keeps those that it has. */
  #allow(pages: number): void {
    if (this.#allowedPages === pages) return;
    this.#data.db.exec(`PRAGMA max_page_count = ${pages}`);
    this.#allowedPages = pages;
  }

  /** Whether a commit without room is at the limit of the file, and not at that of the disk. */
  #isAtLimit({ replaced, records }: CommitCall): boolean {
    const needed = 2 * replaced.length + records.length / (pageBytes / 2) + 2;
    return this.#data.pages + needed >= this.#maxPutPages;
  }

  #full(isAtLimit: boolean): JournalFailure {
    const { file } = this.#data;
    const why = isAtLimit
      ? `is at its limit of ${this.#maxPages * pageBytes} bytes. Delete objects`
      : "can't grow: there is no room on the disk. Free some";
    return new JournalFailure("full", `The data file ${file} ${why}, then try again.`);
  }

  /** Removing history, or a checkpoint, has failed: without room, it is done later. Otherwise all later commits fail. */
  failMaintenance(error: unknown): void {
    if (sqliteCode(error) !== sqliteCodes.full) this.#failed(error);
  }

  #failed(error: unknown): JournalFailure {
    const { file } = this.#data;
    const why = error instanceof JournalFailure ? error.message : `${messageOf(error)}.`;
    this.#fault = new JournalFailure(
      "fault",
      `It is not known what the data file ${file} has kept, as a write has failed: ${why}`,
    );
    return this.#fault;
  }
}

/** The pages that a commit needs at the very least. */
function leastPages({ records }: CommitCall): number {
  return Math.ceil(records.length / pageBytes);
}

function hasPuts({ records, entries }: CommitCall): boolean {
  const reader = new RecordReader(records);
  if (entries.some(({ type }) => type === "lease")) return true;
  while (reader.next()) if (!reader.isDeleted) return true;
  return false;
}

function leaseText({ id, ttlSeconds, isGranted }: KeptLease): string {
  return JSON.stringify({ id: String(id), ttlSeconds, isGranted });
}

/** The leases that the data file has. */
export function readLeases(data: DataFile): KeptLease[] {
  return readAll(data, () =>
    data.leases.all().map((text) => {
      const lease = JSON.parse(text);
      return { ...lease, id: BigInt(lease.id) };
    }),
  );
}

/** The requests that the data file has, the oldest first. */
export function readRequests(data: DataFile): KeptRequest[] {
  return readAll(data, () => data.requests.all().map((text) => JSON.parse(text)));
}

function readAll<T>(data: DataFile, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw readFailure(data.file, error);
  }
}
