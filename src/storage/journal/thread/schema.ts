import { crc32 } from "node:zlib";

/** Identifies data files of this program: "wfan". */
export const applicationId = 0x7766616e;

/** The format of the data file, its `user_version`. */
export const formatVersion = 1;

/*
 * `log` has every version of every key, in the order of the changes: records (record.ts). `keys` finds those of a key.
 * docs/decisions/journal.md says why.
 *
 * SQLite has no checksums. So records have one, and other rows a `mark`, the checksum of all else in the row. Whether rows are
 * missing shows in the sums of the marks, which the row of numbers has (numbers.ts).
 */
const tables: Readonly<Record<string, string>> = {
  keys: "CREATE TABLE keys (key BLOB NOT NULL, id INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (key, id)) WITHOUT ROWID",
  leases: "CREATE TABLE leases (id INTEGER PRIMARY KEY, body TEXT NOT NULL, mark INTEGER NOT NULL)",
  log: "CREATE TABLE log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)",
  numbers:
    "CREATE TABLE numbers (id INTEGER PRIMARY KEY, body TEXT NOT NULL, mark INTEGER NOT NULL)",
  requests:
    "CREATE TABLE requests (id INTEGER PRIMARY KEY, body TEXT NOT NULL, mark INTEGER NOT NULL)",
};

/** What creates the tables of an empty database. */
export const createTables: string = [
  `PRAGMA application_id = ${applicationId}`,
  `PRAGMA user_version = ${formatVersion}`,
  ...Object.values(tables),
].join("; ");

/** The schema as SQLite has it, to compare. */
export const schemaText: string = Object.entries(tables)
  .map(([name, sql]) => `${name}: ${sql}`)
  .join("\n");

/** Selects what must equal `schemaText`. */
export const selectSchema =
  "SELECT group_concat(name || ': ' || sql, char(10)) AS text FROM (SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name)";

/** The mark of a row of text. */
export function textMark(id: number | bigint, body: string): number {
  return crc32(body, Number(BigInt.asUintN(32, BigInt(id))));
}

/** The mark of a row of `keys`. Its last bit says whether the record is a deletion. */
export function keyMark(key: Uint8Array, id: number, isDeleted: boolean): number {
  return ((crc32(key, id % 2 ** 32) & ~1) | (isDeleted ? 1 : 0)) >>> 0;
}
