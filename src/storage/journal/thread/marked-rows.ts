import type { DatabaseSync, StatementSync } from "node:sqlite";
import { damaged } from "./failures.ts";
import { minusRow, plusRow, type TableSum } from "./numbers.ts";
import { textMark } from "./schema.ts";

/** A small table of texts by number. Each change returns the sum of the table afterwards. */
export class MarkedRows {
  readonly #file: string;
  readonly #table: string;
  readonly #insert: StatementSync;
  readonly #find: StatementSync;
  readonly #delete: StatementSync;
  readonly #all: StatementSync;

  constructor(file: string, db: DatabaseSync, table: "leases" | "requests") {
    this.#file = file;
    this.#table = table;
    this.#insert = db.prepare(`INSERT INTO ${table} VALUES (?, ?, ?)`);
    this.#find = db.prepare(`SELECT mark FROM ${table} WHERE id = ?`);
    this.#delete = db.prepare(`DELETE FROM ${table} WHERE id = ?`);
    this.#all = db.prepare(`SELECT id, body, mark FROM ${table} ORDER BY id`);
    this.#all.setReadBigInts(true);
  }

  put(sum: TableSum, id: number | bigint, body: string): TableSum {
    const before = this.delete(sum, id);
    const mark = textMark(id, body);
    this.#insert.run(id, body, mark);
    return plusRow(before, id, mark);
  }

  /** Idempotent. */
  delete(sum: TableSum, id: number | bigint): TableSum {
    const mark = this.#find.get(id)?.["mark"];
    if (mark === undefined) return sum;
    this.#delete.run(id);
    return minusRow(sum, id, Number(mark));
  }

  /** All texts, by number. Throws a JournalFailure if one is damaged. */
  all(): string[] {
    return this.#all.all().map(({ id, body, mark }) => {
      if (typeof id !== "bigint" || typeof body !== "string" || textMark(id, body) !== Number(mark))
        throw damaged(this.#file, `a row of its table ${this.#table} is wrong`);
      return body;
    });
  }
}
