import { randomInt } from "node:crypto";
import { crc32 } from "node:zlib";

/*
 * A file is a sequence of blocks. Each has a header of 16 bytes, numbers of 32 bits with the least significant byte first:
 *
 *     checksum of all that follows in the block, size of the content, position of the block in the file (0, 1, ...), kind
 *
 * The checksum is CRC-32, which begins with the salt of the file, a random number. So a loss of power leaves nothing behind
 * that looks right: a block that was not written is zeros, or what another file had there before, perhaps a block of an
 * older file of the same kind; one that was written partly has another checksum; and one that is missing shows in the
 * positions. The first block is a FileHead, which has the salt.
 */

/** What a block has. */
export const blockKinds = {
  head: 1,
  /** Objects whose keys are ASCII. */
  asciiObjects: 2,
  objects: 3,
  /** The last block of a snapshot. */
  end: 4,
  batches: 5,
} as const;

export const blockHeaderBytes = 16;

/** Increased with each change that older versions can't read: files of another format are not used. */
const format = 1;

/** Maximum size of the content of a first block, in bytes. */
const maxHeadBytes = 64 * 1024;

/**
 * The source of a state, and all that decides which objects it has, each under the name that a message gives it: such as
 * `prefix` or `user`.
 */
export type StateIdentity = Readonly<Record<string, string>>;

/** What a file is of. */
export interface FileHead {
  readonly format: number;
  /** Name of the resource. */
  readonly name: string;
  readonly identity: StateIdentity;
  /** The same for files whose events follow on each other. */
  readonly lineage: string;
  readonly historyId: string;
  /** Of a snapshot: its revision. Of a log: that before its first event. */
  readonly revision: number;
  readonly syncedAt: number;
  readonly salt: number;
}

export function fileHead(of: Omit<FileHead, "format" | "salt">): FileHead {
  return { ...of, format, salt: randomInt(1, 2 ** 32) };
}

/** Where a block is, without its header. */
export interface BlockContent {
  readonly kind: number;
  readonly start: number;
  readonly end: number;
}

/** Writes the header of a block, whose content is all that follows it in `block`. */
export function sealBlock(block: Buffer, salt: number, position: number, kind: number): Buffer {
  block.writeUInt32LE(block.length - blockHeaderBytes, 4);
  block.writeUInt32LE(position, 8);
  block.writeUInt32LE(kind, 12);
  block.writeUInt32LE(crc32(block.subarray(4), salt), 0);
  return block;
}

/** The first block of a file. */
export function headBlock(head: FileHead): Buffer {
  return textBlock(JSON.stringify(head), 0, 0, blockKinds.head);
}

/** A block with text. */
export function textBlock(text: string, salt: number, position: number, kind: number): Buffer {
  const block = Buffer.concat([Buffer.alloc(blockHeaderBytes), Buffer.from(text)]);
  return sealBlock(block, salt, position, kind);
}

/** Finds the block that begins at `at`; undefined if none does that is whole and has this position. */
export function blockAt(
  bytes: Buffer,
  at: number,
  salt: number,
  position: number,
): BlockContent | undefined {
  const start = at + blockHeaderBytes;
  if (start > bytes.length) return undefined;
  const end = start + bytes.readUInt32LE(at + 4);
  if (end > bytes.length || bytes.readUInt32LE(at + 8) !== position) return undefined;
  if (crc32(bytes.subarray(at + 4, end), salt) !== bytes.readUInt32LE(at)) return undefined;
  return { kind: bytes.readUInt32LE(at + 12), start, end };
}

/** Reads the first block from the first bytes of a file: `headBytes` of them, or all. Undefined if there is no such block. */
export function readHead(bytes: Buffer): (FileHead & { readonly end: number }) | undefined {
  const block = blockAt(bytes, 0, 0, 0);
  if (block?.kind !== blockKinds.head) return undefined;
  const head: FileHead = JSON.parse(bytes.toString("utf8", block.start, block.end));
  return { ...head, end: block.end };
}

/** Number of bytes that `readHead` needs at most. */
export const headBytes = blockHeaderBytes + maxHeadBytes;

/** Why a file can't be used: it is of another format, resource or source. Undefined: it can. */
export function otherThan(
  head: FileHead,
  name: string,
  identity: StateIdentity,
): string | undefined {
  if (head.format !== format)
    return `it has format ${head.format}, and this version reads ${format}`;
  if (head.name !== name) return `it is of the resource ${JSON.stringify(head.name)}`;
  const names = new Set([...Object.keys(head.identity), ...Object.keys(identity)]);
  const others = [...names].filter((each) => head.identity[each] !== identity[each]);
  return others.length === 0 ? undefined : `it was kept with another ${others.join(", another ")}`;
}
