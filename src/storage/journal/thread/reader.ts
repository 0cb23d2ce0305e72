import type { StatementSync } from "node:sqlite";
import type { FoundRecords, ReadCall } from "../messages.ts";
import { RecordReader } from "../record.ts";
import type { DataFile } from "./data-file.ts";
import { damaged, JournalFailure } from "./failures.ts";
import type { KeyIndex, Steps } from "./key-index.ts";

/** Size of the parts of the state that are read at once, in bytes, and the maximum number of keys. */
const partBytes = 64 * 1024;
const maxPartKeys = 200;

/** Rows of the log that are read at once. */
const readAtOnce = 32;

/** One record of the data file, with all of its bytes. */
type Row = RecordReader;

/** Reads the state and the history. All that it returns is checked: damage is a JournalFailure, and never an answer. */
export class JournalReader {
  readonly #data: DataFile;
  readonly #index: KeyIndex;
  readonly #readPart: StatementSync;
  readonly #readRecord: StatementSync;
  readonly #readFrom: StatementSync;
  readonly #readAt: StatementSync;
  readonly #readBefore: StatementSync;
  /** Number of keys of the next part of the state. */
  #partKeys = 16;

  constructor(data: DataFile) {
    this.#data = data;
    const { db } = data;
    this.#index = data.index;
    // One row for each part: a row for each object would take three times as long.
    this.#readPart = db.prepare(
      "SELECT CAST(group_concat(log.record, '') AS BLOB) AS records, count(*) AS keys, count(log.id) AS found, max(newest.key) AS last " +
        "FROM (SELECT key, max(id) AS id FROM keys WHERE key > ? GROUP BY key ORDER BY key LIMIT ?) AS newest LEFT JOIN log ON log.id = newest.id",
    );
    this.#readRecord = db.prepare("SELECT record FROM log WHERE id = ?");
    this.#readFrom = db.prepare(
      `SELECT id, record FROM log WHERE id >= ? ORDER BY id LIMIT ${readAtOnce}`,
    );
    this.#readAt = db.prepare(
      "SELECT id, substr(record, 1, 14) AS head FROM log WHERE id >= ? ORDER BY id LIMIT 1",
    );
    this.#readBefore = db.prepare(
      "SELECT id, record FROM log WHERE id < ? ORDER BY id DESC LIMIT 1",
    );
  }

  /** The newest record of each key, deletions included: they show that no other record of the key is the newest. */
  objects(after: Uint8Array | undefined): FoundRecords {
    if (after === undefined) this.#data.isMapped = true;
    const { records, keys, found, last } =
      this.#readPart.get(after ?? new Uint8Array(0), this.#partKeys) ?? {};
    const isLast = Number(keys) < this.#partKeys;
    if (isLast) this.#data.isMapped = false;
    if (!(records instanceof Uint8Array)) return { records: new Uint8Array(0) };
    if (keys !== found) throw damaged(this.#data.file, "a record is missing");
    const perKey = Math.max(1, records.length / Number(keys));
    this.#partKeys = Math.max(1, Math.min(maxPartKeys, Math.floor(partBytes / perKey)));
    return { records: whole(records), nextKey: isLast ? undefined : (last as Uint8Array) };
  }

  /** Each change, followed by the record before it unless it is a creation. */
  changes(call: ReadCall & { type: "changes" }): Steps<FoundRecords> {
    return this.#whileKept(call.after, this.#changes(call));
  }

  *#changes(call: ReadCall & { type: "changes" }): Steps<FoundRecords> {
    const upTo = Math.min(call.upTo, this.#data.numbers.revision);
    const found = new FoundParts();
    let id = this.#lastIdAt(call.after) + 1;
    // The next record must be this one.
    let revision = call.after + 1;
    let position = 0;
    while (revision <= upTo) {
      const rows = this.#readFrom.all(id);
      if (rows.length === 0) throw damaged(this.#data.file, `revision ${revision} is missing`);
      for (const row of rows) {
        const record = checkedRecord(row["record"]);
        if (record.revision !== revision || record.position !== position) {
          throw damaged(this.#data.file, `a part of revision ${revision} is missing`);
        }
        found.add(record);
        found.changes++;
        id = Number(row["id"]) + 1;
        if (!record.isCreation) found.add(this.#previousOf(record, id - 1));
        position = record.isLast ? 0 : position + 1;
        if (!record.isLast) continue;
        const isEnd =
          revision === upTo || found.changes >= call.maxEvents || found.bytes >= call.maxBytes;
        if (isEnd) return { records: found.joined() };
        revision++;
      }
      yield;
    }
    return { records: found.joined() };
  }

  /** The objects of one page. */
  page(call: ReadCall & { type: "page" }): Steps<FoundRecords> {
    return this.#whileKept(call.revision, this.#page(call));
  }

  *#page(call: ReadCall & { type: "page" }): Steps<FoundRecords> {
    const upToId = this.#lastIdAt(call.revision);
    const found = new FoundParts();
    let size = 0;
    for (const entry of this.#index.newest(call.from, call.to, upToId)) {
      if (entry === undefined) {
        yield;
        continue;
      }
      if (entry.isDeleted) continue;
      const record = this.#recordOf(entry.key, entry.id);
      const bytes = record.estimatedBytes;
      if (found.changes === call.limit || (found.changes > 0 && size + bytes > call.maxBytes)) {
        return { records: found.joined(), hasMore: true };
      }
      found.add(record);
      found.changes++;
      size += bytes;
    }
    return { records: found.joined(), hasMore: false };
  }

  /** Each change of the key, a deletion followed by what it has deleted. */
  history(call: ReadCall & { type: "history" }): Steps<FoundRecords> {
    return this.#whileKept(call.upTo, this.#history(call));
  }

  *#history(call: ReadCall & { type: "history" }): Steps<FoundRecords> {
    const { key } = call;
    const found = new FoundParts();
    let size = 0;
    let entry = this.#index.before(key, this.#lastIdAt(call.upTo) + 1);
    let newer: Row | undefined;
    while (entry !== undefined) {
      const record = this.#recordOf(key, entry.id);
      if (newer !== undefined) this.#checkOrder(newer, record);
      const { oldest } = this.#data.numbers;
      const isOldest = record.revision <= oldest;
      // Reads at `oldest` or later can't see it.
      if (isOldest && record.isDeleted) break;
      const older = this.#index.before(key, entry.id);
      const deleted = record.isDeleted ? this.#previousOf(record, entry.id) : undefined;
      const bytes = (deleted ?? record).estimatedBytes;
      if (found.changes === call.limit || (found.changes > 0 && size + bytes > call.maxBytes)) {
        return { records: found.joined(), next: record.revision };
      }
      found.add(record);
      found.changes++;
      if (deleted !== undefined) found.add(deleted);
      size += bytes;
      if (isOldest) break;
      if (older === undefined && !record.isCreation && !record.isDeleted) {
        throw damaged(this.#data.file, "a version of a key is missing");
      }
      newer = record;
      entry = older;
      if (found.changes % readAtOnce !== 0) continue;
      yield;
      // What is older was removed meanwhile.
      if (record.revision <= this.#data.numbers.oldest) break;
    }
    return { records: found.joined(), next: undefined };
  }

  /**
   * Executes a read that needs the history from this revision on. What was removed between its steps can look like damage:
   * then it is too old, whatever it has found.
   */
  *#whileKept(revision: number, steps: Steps<FoundRecords>): Steps<FoundRecords> {
    this.#checkRevision(revision);
    try {
      return yield* steps;
    } finally {
      this.#checkRevision(revision);
    }
  }

  /** The record before this one, which is not a creation. */
  #previousOf(record: Row, id: number): Row {
    const entry = this.#index.before(record.key, id);
    if (entry === undefined) throw damaged(this.#data.file, "a version of a key is missing");
    const previous = this.#recordOf(record.key, entry.id);
    this.#checkOrder(record, previous);
    return previous;
  }

  #checkOrder(newer: Row, older: Row): void {
    const isNext = newer.isCreation
      ? older.isDeleted
      : !older.isDeleted &&
        older.createRevision === newer.createRevision &&
        older.version === newer.version - (newer.isDeleted ? 0 : 1);
    if (!isNext || older.revision >= newer.revision) {
      throw damaged(this.#data.file, "a version of a key is missing");
    }
  }

  #recordOf(key: Uint8Array, id: number): Row {
    const row = this.#readRecord.get(id);
    if (row === undefined) throw damaged(this.#data.file, "a record is missing");
    const record = checkedRecord(row["record"]);
    if (!record.key.equals(key)) throw damaged(this.#data.file, "a record has another key");
    return record;
  }

  /** The id of the newest record of this revision or an older one; 0: there is no such record. Ids are in the order of the revisions. */
  #lastIdAt(revision: number): number {
    const { lastId, revision: newest } = this.#data.numbers;
    if (revision >= newest) return lastId;
    let low = 1;
    let high = lastId + 1;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const row = this.#readAt.get(middle);
      if (row !== undefined && headRevision(row["head"]) <= revision) low = Number(row["id"]) + 1;
      else high = middle;
    }
    // A wrong number on the way leads to one of its neighbours.
    const before = this.#readBefore.get(low);
    const after = this.#readFrom.all(low)[0];
    const isRight =
      (before === undefined || checkedRecord(before["record"]).revision <= revision) &&
      after !== undefined &&
      checkedRecord(after["record"]).revision > revision;
    if (!isRight) throw damaged(this.#data.file, `revision ${revision} can't be found`);
    return low - 1;
  }

  #checkRevision(revision: number): void {
    const { oldest } = this.#data.numbers;
    if (revision >= oldest) return;
    throw new JournalFailure("too old", `Revision ${revision} is not kept.`, revision, oldest);
  }
}

/** Records that have been found, in order. */
class FoundParts {
  readonly #parts: Buffer[] = [];
  changes = 0;
  bytes = 0;

  add(record: Row): void {
    this.#parts.push(record.bytes);
    this.bytes += record.size;
  }

  joined(): Uint8Array<ArrayBuffer> {
    const joined = new Uint8Array(this.bytes);
    let at = 0;
    for (const part of this.#parts) {
      joined.set(part, at);
      at += part.length;
    }
    return joined;
  }
}

/** Throws a RecordFault unless these are the bytes of one whole record. */
function checkedRecord(bytes: unknown): Row {
  const reader = new RecordReader(bytes as Uint8Array);
  reader.next();
  return reader;
}

function headRevision(head: unknown): number {
  const bytes = head as Uint8Array;
  return bytes.length < 14 ? 0 : Buffer.from(bytes.buffer, bytes.byteOffset).readUIntLE(8, 6);
}

/** In a buffer of its own, which can be moved. */
function whole(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const isWhole =
    bytes.byteLength === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer;
  return isWhole ? (bytes as Uint8Array<ArrayBuffer>) : new Uint8Array(bytes);
}
