import { statSync } from "node:fs";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { DataSync, JournalFacts } from "../messages.ts";
import { damaged } from "./failures.ts";
import { KeyIndex } from "./key-index.ts";
import { MarkedRows } from "./marked-rows.ts";
import { isSameSum, type JournalNumbers, sumColumns, type TableSum } from "./numbers.ts";
import { schemaText, selectSchema, textMark } from "./schema.ts";

/** Size of a page in bytes. Measured with others in docs/decisions/journal.md. */
export const pageBytes = 4_096;

/** SQLite's cache of pages, in KiB. */
const cacheKib = 32 * 1024;

/** Up to this size the whole file is checked when it is opened, in bytes. That takes about a second of CPU time for each GiB. */
const oneGib = 1024 ** 3;

/** Size of the write-ahead log that stays after a checkpoint, in bytes: its blocks are used again. */
const maxIdleWalBytes = 16 * 1024 ** 2;

/** Of the table `numbers`: the JournalNumbers, and the times of revisions. */
const numbersRow = 1;
const timesRow = 2;

/** A database with the tables of a journal, which this process alone has open, and the numbers of its last commit. */
export class DataFile {
  readonly file: string;
  readonly db: DatabaseSync;
  /** Whether the whole file has been read, and its pages have been checked. */
  readonly isChecked: boolean;
  readonly index: KeyIndex;
  readonly leases: MarkedRows;
  readonly requests: MarkedRows;
  #numbers: JournalNumbers;
  readonly #begin: StatementSync;
  readonly #commit: StatementSync;
  readonly #replace: StatementSync;
  readonly #pages: StatementSync;
  readonly #freePages: StatementSync;
  #walBytes = 0;

  /**
   * Throws a JournalFailure if it is damaged; a file of more than `maxCheckedBytes` is not checked as a whole. `db`: its
   * application id and format are right.
   */
  constructor(file: string, db: DatabaseSync, sync: DataSync, maxCheckedBytes: number = oneGib) {
    this.file = file;
    this.db = db;
    configure(db, sync);
    this.isChecked = statSync(file).size <= maxCheckedBytes;
    this.#checkPages();
    this.#begin = db.prepare("BEGIN IMMEDIATE");
    this.#commit = db.prepare("COMMIT");
    this.#replace = db.prepare("INSERT OR REPLACE INTO numbers VALUES (?, ?, ?)");
    this.#pages = db.prepare("PRAGMA page_count");
    this.#freePages = db.prepare("PRAGMA freelist_count");
    this.index = new KeyIndex(file, db);
    this.leases = new MarkedRows(file, db, "leases");
    this.requests = new MarkedRows(file, db, "requests");
    this.#numbers = this.#readRow(numbersRow) as JournalNumbers;
    this.#checkSums();
    this.measureWal();
  }

  get numbers(): JournalNumbers {
    return this.#numbers;
  }

  get facts(): JournalFacts {
    const { historyId, revision, oldest } = this.#numbers;
    return { historyId, revision, oldest, bytes: this.pages * pageBytes + this.#walBytes };
  }

  /** Number of pages of the file. */
  get pages(): number {
    return Number(this.#pages.get()?.["page_count"]);
  }

  /** Number of pages that are not free. */
  get usedPages(): number {
    return this.pages - Number(this.#freePages.get()?.["freelist_count"]);
  }

  /** What the history costs: all versions that are not in the current state. */
  get historyCost(): number {
    return this.#numbers.totalCost - this.#numbers.currentCost;
  }

  /** Changes the file in one transaction, which ends with the numbers that `change` returns. Rolls back if it throws. */
  transact(change: (numbers: JournalNumbers) => JournalNumbers): void {
    this.#begin.run();
    try {
      const numbers = change(this.#numbers);
      this.#writeRow(numbersRow, numbers);
      this.#commit.run();
      this.#numbers = numbers;
    } catch (error) {
      // SQLite may have rolled back itself.
      if (this.db.isTransaction) this.db.exec("ROLLBACK");
      throw error;
    }
  }

  /** The times of revisions, as `writeTimes` has written them; undefined: never. */
  readTimes(): unknown {
    return this.#readRow(timesRow);
  }

  /** Within a transaction. */
  writeTimes(times: unknown): void {
    this.#writeRow(timesRow, times);
  }

  /**
   * Moves what is in the write-ahead log to the data file, so that the next commit begins the log again. Shortens a log that
   * is large after a large commit.
   */
  checkpoint(): void {
    this.measureWal();
    if (this.#walBytes > maxIdleWalBytes) this.emptyLog();
    else this.db.exec("PRAGMA wal_checkpoint(PASSIVE)");
  }

  /** As `checkpoint`, and leaves an empty log. */
  emptyLog(): void {
    this.db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    this.measureWal();
  }

  measureWal(): void {
    this.#walBytes = statSync(`${this.file}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  }

  /**
   * Whether pages are read in the memory of the system, which halves the time to read a state. Only for pages that were read
   * before: one that the disk can't read would end the process.
   */
  set isMapped(isMapped: boolean) {
    this.db.exec(`PRAGMA mmap_size = ${isMapped && this.isChecked ? 2 ** 31 : 0}`);
  }

  close(): void {
    this.db.close();
  }

  #readRow(id: number): unknown {
    const { body, mark } =
      this.db.prepare("SELECT body, mark FROM numbers WHERE id = ?").get(id) ?? {};
    if (body === undefined && id === timesRow) return undefined;
    if (typeof body !== "string" || textMark(id, body) !== mark) {
      throw damaged(this.file, "its row of numbers is missing or wrong");
    }
    return JSON.parse(body);
  }

  #writeRow(id: number, content: unknown): void {
    const body = JSON.stringify(content);
    this.#replace.run(id, body, textMark(id, body));
  }

  #checkPages(): void {
    const { db, file } = this;
    const text = db.prepare(selectSchema).get()?.["text"];
    if (text !== schemaText) throw damaged(file, "its tables are not those of its format");
    if (!this.isChecked) return;
    const found = db.prepare("PRAGMA quick_check(1)").get()?.["quick_check"];
    if (found !== "ok") throw damaged(file, String(found));
  }

  /** Finds rows that are missing, or of another time. */
  #checkSums(): void {
    const { keys, leases, requests, lastId, cleanedId } = this.#numbers;
    for (const [table, sum] of Object.entries({ keys, leases, requests })) {
      const found = this.#sumOf(sumColumns, table);
      if (!isSameSum(found, sum))
        throw damaged(this.file, `rows of its table ${table} are missing`);
    }
    const newest = this.db.prepare("SELECT max(id) AS id FROM log").get()?.["id"] ?? 0;
    if (lastId > cleanedId ? newest !== lastId : Number(newest) > lastId) {
      throw damaged(this.file, "its newest changes are missing");
    }
    if (!this.isChecked) return;
    const log = this.#sumOf(sumColumns.replace("sum(mark)", "0"), "log");
    if (log.count !== keys.count || log.ids !== keys.ids) {
      throw damaged(this.file, "rows of its table log are missing");
    }
  }

  #sumOf(columns: string, table: string): TableSum {
    const { count, marks, ids } = this.db.prepare(`SELECT ${columns} FROM ${table}`).get() ?? {};
    return { count: Number(count), marks: Number(marks), ids: Number(ids) };
  }
}

function configure(db: DatabaseSync, sync: DataSync): void {
  db.exec(
    [
      "PRAGMA trusted_schema = OFF",
      "PRAGMA cell_size_check = ON",
      "PRAGMA temp_store = MEMORY",
      `PRAGMA cache_size = -${cacheKib}`,
      "PRAGMA journal_mode = WAL",
      // Without a sync at a commit, one at a checkpoint still keeps the file whole.
      `PRAGMA synchronous = ${sync === "full" ? "FULL" : "NORMAL"}`,
      "PRAGMA fullfsync = ON",
      "PRAGMA checkpoint_fullfsync = ON",
      // Between commits: see Retention.
      "PRAGMA wal_autocheckpoint = 0",
    ].join("; "),
  );
}
