import { readFileSync } from "node:fs";
import { endianness } from "node:os";
import { damaged } from "./failures.ts";

/*
 * The write-ahead log (sqlite.org/fileformat2.html#walformat): a header, and frames, each a page of the database with a header.
 * A frame's checksum covers everything before it. SQLite ignores what follows the first frame that does not match: usually the
 * rest of a commit that was interrupted, so no other. That also forgets kept commits behind damage, without an error.
 */

const headerBytes = 32;
const frameHeaderBytes = 24;

/** The first bytes of a log whose checksums are those of little-endian numbers. */
const littleEndianMagic = 0x377f0682;

/** Throws a JournalFailure if the write-ahead log has kept commits behind a damaged one. Only for a log that each commit has synced. */
export function checkWal(file: string): void {
  const wal = read(`${file}-wal`);
  if (wal === undefined || wal.length <= headerBytes || endianness() !== "LE") return;
  const pageSize = wal.readUInt32BE(8);
  const sums = new Checksum(wal);
  const isHeader = wal.readUInt32BE(0) === littleEndianMagic && pageSize >= 512;
  if (!isHeader || !sums.matches(0, headerBytes - 8, headerBytes - 8)) {
    throw damaged(file, `the beginning of ${file}-wal is wrong`);
  }
  const frameBytes = frameHeaderBytes + pageSize;
  let isDamaged = false;
  let commits = 0;
  for (let at = headerBytes; at + frameBytes <= wal.length; at += frameBytes) {
    // Frames of before the log was begun again have other salts.
    const isOfLog = wal.compare(wal, 16, 24, at + 8, at + 16) === 0;
    if (!isDamaged) {
      const isWhole =
        isOfLog && sums.matches(at, at + 8, at + 16, at + frameHeaderBytes, at + frameBytes);
      isDamaged = !isWhole;
    }
    const isCommit = wal.readUInt32BE(at + 4) !== 0;
    if (isDamaged && isOfLog && isCommit) commits++;
  }
  // One may be that of the commit which was interrupted: its frames can reach the disk in any order.
  if (commits <= 1) return;
  const wayOut = "To continue without these, start once with --data-sync off";
  throw damaged(file, `a part of ${file}-wal is wrong, and later commits follow it. ${wayOut}`);
}

/** SQLite's checksum of all frames up to one. */
class Checksum {
  readonly #bytes: Buffer;
  #first = 0;
  #second = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Adds the bytes of both parts, and returns whether the sum is that at `sumAt`. */
  matches(start: number, end: number, sumAt: number, nextStart = 0, nextEnd = 0): boolean {
    this.#add(start, end);
    this.#add(nextStart, nextEnd);
    const bytes = this.#bytes;
    return (
      bytes.readUInt32BE(sumAt) === this.#first && bytes.readUInt32BE(sumAt + 4) === this.#second
    );
  }

  #add(start: number, end: number): void {
    const bytes = this.#bytes;
    let first = this.#first;
    let second = this.#second;
    for (let at = start; at < end; at += 8) {
      first = (first + bytes.readUInt32LE(at) + second) >>> 0;
      second = (second + bytes.readUInt32LE(at + 4) + first) >>> 0;
    }
    this.#first = first;
    this.#second = second;
  }
}

function read(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    // SQLite reports what is wrong.
    return undefined;
  }
}
