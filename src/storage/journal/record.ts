import { crc32 } from "node:zlib";
import { keyBytes, keySize, keyText } from "../../model/key-bytes.ts";
import { StoredObject } from "../../model/object.ts";

/*
 * A record is one version of one key on disk, and on the way between the threads:
 *
 *     size u32, checksum u32, modRevision u48, position u32, flags u8, createRevision u48, version u48, lease u64, key size u32, key, value
 *
 * in little-endian order. The size is that of the whole record, the checksum that of all that follows it. `position` counts the
 * changes of one revision, from 0. Records stand one after another in a buffer without anything between them.
 */

/** Number of bytes before the key. */
const headerBytes = 43;

/** The record is a deletion: it has the numbers of what was deleted, and no value. */
const deletedFlag = 1;
/** The record is the last one of its revision. */
const lastFlag = 2;

/** What a row of the data file takes on disk beside the record, and a second time for the key, about, in bytes. */
const rowBytes = 24;

/** What is wrong with bytes that should be a record. Its message is a clause. */
export class RecordFault extends Error {}

/** What is reported of a damaged file: `what` is a clause. */
export function damageText(file: string, what: string): string {
  return `The data file ${file} is damaged: ${what}. Stop the service and restore a backup.`;
}

/** Size of the record of an object in bytes; of a deletion, with `isDeleted`. */
export function recordSize(object: StoredObject, isDeleted: boolean = false): number {
  return headerBytes + keySize(object.key) + (isDeleted ? 0 : object.valueBytes);
}

/** What a record takes on disk, about, in bytes. Bounds of the history count it. */
export function recordCost(size: number, keyLength: number): number {
  return size + keyLength + rowBytes;
}

/** Writes the record of one change at `start`, and returns the position of its end. The buffer has room for it (`recordSize`). */
export function writeRecord(
  into: Buffer,
  start: number,
  object: StoredObject,
  position: number,
  isDeleted: boolean,
  isLast: boolean,
): number {
  const { key, content, valueStart, valueEnd } = object;
  const keyStart = start + headerBytes;
  // Text is written without a copy; a key that is not UTF-8 is rare.
  const keyLength = key.isWellFormed()
    ? into.write(key, keyStart, "utf8")
    : keyBytes(key).copy(into, keyStart);
  let end = keyStart + keyLength;
  if (!isDeleted) {
    Buffer.prototype.copy.call(content, into, end, valueStart, valueEnd);
    end += valueEnd - valueStart;
  }
  into.writeUInt32LE(end - start, start);
  into.writeUIntLE(object.modRevision, start + 8, 6);
  into.writeUInt32LE(position, start + 14);
  into.writeUInt8((isDeleted ? deletedFlag : 0) | (isLast ? lastFlag : 0), start + 18);
  into.writeUIntLE(object.createRevision, start + 19, 6);
  into.writeUIntLE(object.version, start + 25, 6);
  into.writeBigUInt64LE(object.lease, start + 31);
  into.writeUInt32LE(keyLength, start + 39);
  into.writeUInt32LE(crc32(into.subarray(start + 8, end)), start + 4);
  return end;
}

/** Reads the records of a buffer in place, one after another. Objects share the buffer. */
export class RecordReader {
  readonly bytes: Buffer;
  /** Of the record that was read last, or of the first one. */
  start = 0;
  end = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Moves to the next record and checks it. Returns whether there is one. Throws a RecordFault. */
  next(): boolean {
    const { bytes, end: start } = this;
    if (start === bytes.length) return false;
    if (start + headerBytes > bytes.length) throw new RecordFault("a record is cut off");
    const size = bytes.readUInt32LE(start);
    const keyLength = bytes.readUInt32LE(start + 39);
    if (size < headerBytes + keyLength || start + size > bytes.length) {
      throw new RecordFault("a record is cut off");
    }
    if (crc32(bytes.subarray(start + 8, start + size)) !== bytes.readUInt32LE(start + 4)) {
      throw new RecordFault("the checksum of a record does not match");
    }
    this.start = start;
    this.end = start + size;
    return true;
  }

  get size(): number {
    return this.end - this.start;
  }

  /** As `estimatedBytes` of the object: key, value, and 64 bytes. */
  get estimatedBytes(): number {
    return this.size - headerBytes + 64;
  }

  get revision(): number {
    return this.bytes.readUIntLE(this.start + 8, 6);
  }

  get position(): number {
    return this.bytes.readUInt32LE(this.start + 14);
  }

  get isDeleted(): boolean {
    return (this.bytes.readUInt8(this.start + 18) & deletedFlag) !== 0;
  }

  get isLast(): boolean {
    return (this.bytes.readUInt8(this.start + 18) & lastFlag) !== 0;
  }

  get createRevision(): number {
    return this.bytes.readUIntLE(this.start + 19, 6);
  }

  get version(): number {
    return this.bytes.readUIntLE(this.start + 25, 6);
  }

  /** Whether it is the put that created the object, so that there was no object before. */
  get isCreation(): boolean {
    return !this.isDeleted && this.createRevision === this.revision;
  }

  get keyLength(): number {
    return this.bytes.readUInt32LE(this.start + 39);
  }

  /** A view of the key. */
  get key(): Buffer {
    const start = this.start + headerBytes;
    return this.bytes.subarray(start, start + this.keyLength);
  }

  /** The object of a record that is not a deletion. */
  object(): StoredObject {
    const { bytes, start } = this;
    const keyStart = start + headerBytes;
    const valueStart = keyStart + this.keyLength;
    return new StoredObject(
      keyText(bytes, keyStart, valueStart),
      bytes,
      this.createRevision,
      this.revision,
      this.version,
      bytes.readBigUInt64LE(start + 31),
      valueStart,
      this.end,
    );
  }
}
