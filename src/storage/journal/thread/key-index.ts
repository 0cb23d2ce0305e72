import type { DatabaseSync, StatementSync } from "node:sqlite";
import { damaged } from "./failures.ts";
import { keyMark } from "./schema.ts";

/** Rows that are read at once. */
const readAtOnce = 256;

/** After so many versions of one key, the rest of them is skipped. */
const maxVersions = 16;

const noKey = new Uint8Array(0);

/** Where one version of a key is. */
export interface KeyEntry {
  readonly key: Uint8Array;
  readonly id: number;
  readonly isDeleted: boolean;
}

/**
 * Reads the table `keys`, which has the ids of all versions of all keys, in the order of the keys.
 *
 * It finds out if a key is damaged, also by a search that does not return it: such a search was misled by it, so it ends beside
 * it. Both neighbours of each end are checked.
 */
export class KeyIndex {
  readonly #file: string;
  readonly #below: StatementSync;
  readonly #above: StatementSync;

  constructor(file: string, db: DatabaseSync) {
    this.#file = file;
    this.#below = db.prepare(
      "SELECT key, id, mark FROM keys WHERE (key, id) < (?, ?) ORDER BY key DESC, id DESC LIMIT 1",
    );
    this.#above = db.prepare(
      "SELECT key, id, mark FROM keys WHERE (key, id) >= (?, ?) ORDER BY key, id LIMIT ?",
    );
  }

  /** The newest version of a key with an id below this one; undefined: it has no such version. */
  before(key: Uint8Array, id: number): KeyEntry | undefined {
    for (const row of this.#above.all(key, id, 1)) this.#checked(row);
    const row = this.#below.get(key, id);
    const entry = row && this.#checked(row);
    return entry !== undefined && Buffer.compare(entry.key, key) === 0 ? entry : undefined;
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
    this.before(from, 0);
    let at: { readonly key: Uint8Array; readonly id: number } = { key: from, id: 0 };
    let last: KeyEntry | undefined;
    let newest: KeyEntry | undefined;
    let versions = 0;
    for (;;) {
      const rows = this.#above.all(at.key, at.id, readAtOnce);
      let isSkipped = false;
      for (const row of rows) {
        const entry = this.#checked(row);
        const order = last === undefined ? 1 : Buffer.compare(entry.key, last.key);
        if (order < 0 || (order === 0 && entry.id <= (last?.id ?? 0))) throw this.#disordered();
        if (order !== 0) {
          if (newest !== undefined) yield newest;
          newest = undefined;
          versions = 0;
          if (to !== undefined && Buffer.compare(entry.key, to) >= 0) return;
        }
        last = entry;
        if (entry.id <= upToId) newest = entry;
        if (++versions < maxVersions) continue;
        newest = this.before(entry.key, upToId + 1);
        last = this.before(entry.key, Number.MAX_SAFE_INTEGER) ?? entry;
        isSkipped = true;
        break;
      }
      if (rows.length < readAtOnce && !isSkipped) break;
      if (last === undefined) break;
      at = { key: last.key, id: last.id + 1 };
      yield undefined;
    }
    if (newest !== undefined) yield newest;
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

  #disordered(): Error {
    return damaged(this.#file, "its table keys is not in order");
  }
}
