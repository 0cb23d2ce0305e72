import type { StatementSync } from "node:sqlite";
import { RecordReader, recordCost } from "../record.ts";
import type { DataFile } from "./data-file.ts";
import { damaged } from "./failures.ts";
import { type JournalNumbers, minusRow } from "./numbers.ts";

/** How long one step may keep a commit waiting, in milliseconds, without its sync. */
const stepMs = 3;

/** Records that are read at once. */
const readAtOnce = 64;

/** The times of revisions are known this exactly, as a part of the age of the history; and the least distance, in milliseconds. */
const timeParts = 64;
const minTimeMs = 1_000;

/** When a revision was the newest one. */
interface RevisionTime {
  /** In milliseconds of `usedMs`. */
  readonly at: number;
  readonly revision: number;
}

/**
 * Decides which history is kept, and removes the rest in small steps.
 *
 * Age is counted while the file is in use, by a monotonic clock: what was kept for 1 h before a stop of a week is 1 h old
 * after it. So a clock that is set back or forth removes nothing early, and nothing is kept longer than the service runs.
 */
export class Retention {
  readonly #data: DataFile;
  readonly #maxMs: number;
  readonly #maxCost: number;
  readonly #usedMsAtOpen: number;
  #times: readonly RevisionTime[];
  /** Everything that no read at this revision or later can see has been removed. */
  #cleanedTo = 0;
  readonly #readRecords: StatementSync;
  readonly #readOlder: StatementSync;
  readonly #readSize: StatementSync;
  readonly #deleteKey: StatementSync;
  readonly #deleteRecord: StatementSync;

  /** `maxMs`: age; `maxCost`: size of all versions that are not in the current state, as `recordCost`. */
  constructor(data: DataFile, maxMs: number, maxCost: number) {
    this.#data = data;
    this.#maxMs = maxMs;
    this.#maxCost = maxCost;
    this.#usedMsAtOpen = data.numbers.usedMs;
    this.#times = (data.readTimes() as RevisionTime[] | undefined) ?? [];
    const { db } = data;
    this.#readRecords = db.prepare(
      `SELECT id, record FROM log WHERE id > ? ORDER BY id LIMIT ${readAtOnce}`,
    );
    this.#readOlder = db.prepare("SELECT id, mark FROM keys WHERE key = ? AND id < ? ORDER BY id");
    this.#readSize = db.prepare("SELECT length(record) AS size FROM log WHERE id = ?");
    this.#deleteKey = db.prepare("DELETE FROM keys WHERE key = ? AND id = ?");
    this.#deleteRecord = db.prepare("DELETE FROM log WHERE id = ?");
  }

  /** Within each commit, whose numbers these are: notes the time, and lets the history expire by age. */
  observe(numbers: JournalNumbers, elapsedMs: number): JournalNumbers {
    const usedMs = this.#usedMsAtOpen + elapsedMs;
    if (this.#maxMs === Infinity) return { ...numbers, usedMs };
    const known = this.#data.numbers.revision;
    // Without those of commits that were rolled back.
    let times = this.#times.filter(({ revision }) => revision <= known);
    if (usedMs - (times.at(-1)?.at ?? -Infinity) >= this.#distanceMs) {
      times.push({ at: usedMs, revision: numbers.revision });
    }
    const kept = times.findLastIndex(({ at }) => at <= usedMs - this.#maxMs);
    const oldest = Math.max(numbers.oldest, times[kept]?.revision ?? 0);
    if (kept > 0) times = times.slice(kept);
    if (times.length !== this.#times.length || times[0] !== this.#times[0]) {
      this.#data.writeTimes(times);
    }
    this.#times = times;
    return { ...numbers, usedMs, oldest };
  }

  /** Time has passed: lets the history expire by age. */
  tick(elapsedMs: number): void {
    if (this.#maxMs === Infinity) return;
    const usedMs = this.#usedMsAtOpen + elapsedMs;
    const { revision, oldest } = this.#data.numbers;
    const newest = this.#times.at(-1);
    const isUnknown = newest === undefined || newest.revision < revision;
    const isPast = usedMs - (newest?.at ?? -Infinity) >= this.#distanceMs;
    const expires = this.#times.some(
      (time) => time.revision > oldest && time.at <= usedMs - this.#maxMs,
    );
    if (expires || (isUnknown && isPast)) {
      this.#data.transact((numbers) => this.observe(numbers, elapsedMs));
    }
  }

  get #distanceMs(): number {
    return Math.max(minTimeMs, this.#maxMs / timeParts);
  }

  /** Whether there is anything to remove. `mustFree`: all history may be removed. */
  hasWork(mustFree: boolean): boolean {
    const { cleanedId, lastId, oldest } = this.#data.numbers;
    if (cleanedId === lastId) return false;
    return this.#cleanedTo < oldest || this.#data.historyCost > (mustFree ? 0 : this.#maxCost);
  }

  /**
   * Removes what no read can see any more, for some milliseconds, and sets the oldest revision by the size of the history.
   * Returns whether it has removed anything. Throws what a transaction throws.
   */
  clean(mustFree: boolean): boolean {
    if (!this.hasWork(mustFree)) return false;
    const maxCost = mustFree ? 0 : this.#maxCost;
    const before = this.#data.numbers.cleanedId;
    let isClean = false;
    this.#data.transact((numbers) => {
      const cleaned = this.#cleanFrom(numbers, maxCost);
      isClean = cleaned.isClean;
      return cleaned.numbers;
    });
    if (isClean) this.#cleanedTo = this.#data.numbers.oldest;
    return this.#data.numbers.cleanedId > before;
  }

  #cleanFrom(
    before: JournalNumbers,
    maxCost: number,
  ): { readonly numbers: JournalNumbers; readonly isClean: boolean } {
    const until = performance.now() + stepMs;
    let numbers = before;
    for (;;) {
      const rows = this.#readRecords.all(numbers.cleanedId);
      if (rows.length === 0) return { numbers, isClean: true };
      for (const { id, record } of rows) {
        const reader = new RecordReader(record as Uint8Array);
        if (!reader.next()) throw damaged(this.#data.file, "a record is empty");
        if (reader.revision > numbers.oldest) {
          if (numbers.totalCost - numbers.currentCost <= maxCost) return { numbers, isClean: true };
          numbers = { ...numbers, oldest: reader.revision };
        }
        numbers = { ...this.#removeBefore(reader, Number(id), numbers), cleanedId: Number(id) };
        if (performance.now() > until) return { numbers, isClean: false };
      }
    }
  }

  /** Removes the versions of a key that this record has replaced, and the record if it is a deletion. */
  #removeBefore(reader: RecordReader, id: number, before: JournalNumbers): JournalNumbers {
    let numbers = before;
    const { key } = reader;
    // One older version, as its own older ones were removed with it.
    for (const { id: older, mark } of this.#readOlder.all(key, reader.isDeleted ? id + 1 : id)) {
      const size = this.#readSize.get(older as number)?.["size"];
      if (size === undefined) throw damaged(this.#data.file, "a record is missing");
      this.#deleteKey.run(key, older as number);
      this.#deleteRecord.run(older as number);
      numbers = {
        ...numbers,
        keys: minusRow(numbers.keys, older as number, mark as number),
        totalCost: numbers.totalCost - recordCost(size as number, key.length),
      };
    }
    return numbers;
  }
}
