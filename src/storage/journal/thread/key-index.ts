import type { DatabaseSync, StatementSync } from "node:sqlite";
import { damaged } from "./failures.ts";
import { emptySum, isSameSum, plusRow, type TableSum } from "./numbers.ts";
import { keyMark } from "./schema.ts";

/** Rows that are read at once. */
const readAtOnce = 256;

/** After so many versions of one key, the rest of them is skipped. */
const maxVersions = 16;

/** A read in steps: commits are executed between these. */
export type Steps<T> = Generator<undefined, T>;

const noKey = new Uint8Array(0);

/** Where one version of a key is. */
export interface KeyEntry {
  readonly key: Uint8Array;
  readonly id: number;
  readonly isDeleted: boolean;
}

/** Reads the table `keys`, which has the ids of all versions of all keys, in the order of the keys. Each row is checked. */
export class KeyIndex {
  readonly #file: string;
  readonly #before: StatementSync;
  readonly #from: StatementSync;
  readonly #after: StatementSync;
  readonly #next: StatementSync;

  constructor(file: string, db: DatabaseSync) {
    this.#file = file;
    const columns = "SELECT key, id, mark FROM keys WHERE";
    this.#before = db.prepare(`${columns} key = ? AND id < ? ORDER BY id DESC LIMIT 1`);
    this.#from = db.prepare(`${columns} key >= ? ORDER BY key, id LIMIT ${readAtOnce}`);
    this.#after = db.prepare(`${columns} key > ? ORDER BY key, id LIMIT ${readAtOnce}`);
    this.#next = db.prepare(`${columns} (key, id) > (?, ?) ORDER BY key, id LIMIT ${readAtOnce}`);
  }

  /**
   * Checks all rows up to this id, of which this is the sum, while later ones are added. A row that is damaged can hide from a
   * search, and from reads of a part, but not from the sum.
   */
  *check(wanted: TableSum, lastId: number): Steps<void> {
    let sum = emptySum;
    let last: KeyEntry = { key: noKey, id: 0, isDeleted: false };
    for (;;) {
      const rows = this.#next.all(last.key, last.id);
      for (const row of rows) {
        last = this.#checked(row);
        if (last.id <= lastId) sum = plusRow(sum, last.id, Number(row["mark"]));
      }
      if (rows.length < readAtOnce) break;
      yield;
    }
    if (!isSameSum(sum, wanted)) throw damaged(this.#file, "its table keys is not in order");
  }

  /** The newest version of a key with an id below this one; undefined: it has no such version. */
  before(key: Uint8Array, id: number): KeyEntry | undefined {
    const row = this.#before.get(key, id);
    return row && this.#checked(row);
  }

  /**
   * The newest version up to this id of each key from `from` up to `to`, in key order, deletions included. Yields undefined
   * between its steps.
   */
  *newest(
    from: Uint8Array,
    to: Uint8Array | undefined,
    upToId: number,
  ): Generator<KeyEntry | undefined> {
    let rows = this.#from.all(from);
    for (;;) {
      // The last key whose versions have all been seen.
      let done: Uint8Array | undefined;
      let last: KeyEntry | undefined;
      let newest: KeyEntry | undefined;
      let versions = 0;
      for (const row of rows) {
        const entry = this.#checked(row);
        if (last !== undefined && Buffer.compare(entry.key, last.key) !== 0) {
          if (newest !== undefined) yield newest;
          done = last.key;
          newest = undefined;
          versions = 0;
        }
        if (to !== undefined && Buffer.compare(entry.key, to) >= 0) return;
        last = entry;
        if (entry.id <= upToId) newest = entry;
        if (++versions < maxVersions) continue;
        newest = this.before(entry.key, upToId + 1);
        break;
      }
      const isSkipped = versions === maxVersions;
      if (isSkipped || rows.length < readAtOnce) {
        if (newest !== undefined) yield newest;
        done = last?.key;
      }
      if (!isSkipped && rows.length < readAtOnce) return;
      rows = this.#after.all(done ?? noKey);
      yield undefined;
    }
  }

  #checked(row: Record<string, unknown>): KeyEntry {
    const key = row["key"] instanceof Uint8Array ? row["key"] : noKey;
    const id = Number(row["id"]);
    const mark = Number(row["mark"]);
    const isDeleted = (mark & 1) !== 0;
    if (keyMark(key, id, isDeleted) !== mark) {
      throw damaged(this.#file, "a row of its table keys is wrong");
    }
    return { key, id, isDeleted };
  }
}
