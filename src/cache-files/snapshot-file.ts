import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import type { Turns } from "../base/turns.ts";
import type { StoredObject } from "../model/object.ts";
import { MessageCursor } from "../protobuf/message-cursor.ts";
import { WireWriter } from "../protobuf/wire-writer.ts";
import {
  blockAt,
  blockHeaderBytes,
  blockKinds,
  type FileHead,
  headBlock,
  sealBlock,
  textBlock,
} from "./blocks.ts";
import type { Budget } from "./budget.ts";
import type { Disk, ReadableFile } from "./disk.ts";
import { objectBytes, readRecord, writeRecord } from "./records.ts";

/*
 * The objects of a cache in key order, in blocks, and a last block with the size of each. The last four bytes of the file are
 * the size of the last block.
 */

/** Size of a block, unless it has only one object, in bytes. One object keeps its block in memory. */
const targetBytes = 512 * 1024;

/** Number of objects between two yields. */
const objectsPerStep = 256;

/** Number of blocks that are read ahead. */
const readAhead = 4;

interface SnapshotEnd {
  readonly objects: number;
  /** Sizes of the blocks between the first and the last, with their headers. */
  readonly blocks: readonly number[];
}

/** What a snapshot is written with. */
export interface SnapshotWriting {
  readonly disk: Disk;
  readonly turns: Turns;
  /** Has room for the bytes, or the write fails. They stay taken if it succeeds. */
  readonly space: Budget;
  readonly signal: AbortSignal;
}

/** There is no room for more bytes within the bound. */
export class NoSpace extends Error {}

/**
 * Writes a snapshot, in time slices, and resolves to its size when it would survive a loss of power. Rejects with the
 * signal's reason, a NoSpace, or the error of the disk.
 */
export async function writeSnapshot(
  { disk, turns, space, signal }: SnapshotWriting,
  path: string,
  head: FileHead,
  objects: Iterable<StoredObject>,
): Promise<number> {
  let taken = 0;
  const take = (bytes: number): void => {
    if (!space.take(bytes))
      throw new NoSpace("There is no room for the snapshot within its bound.");
    taken += bytes;
  };
  const packer = new Packer(objects, head.salt);
  try {
    const file = await disk.create(path);
    try {
      const write = (block: Buffer): Promise<void> => {
        signal.throwIfAborted();
        take(block.length);
        return file.write(block);
      };
      await write(headBlock(head));
      for (;;) {
        const block = await turns.run(packer, packer.next(), signal);
        if (block === undefined) break;
        await write(block);
      }
      await write(packer.end());
      await file.sync();
    } finally {
      await file.close();
    }
    return taken;
  } catch (error) {
    space.release(taken);
    await disk.remove(path).catch(() => {});
    throw error;
  }
}

/** Packs objects into blocks. */
class Packer {
  readonly #objects: Iterator<StoredObject>;
  readonly #salt: number;
  readonly #writer = new WireWriter(Buffer.allocUnsafeSlow(targetBytes));
  readonly #blocks: number[] = [];
  /** The first object of the next block. */
  #first: StoredObject | undefined;
  #count = 0;

  constructor(objects: Iterable<StoredObject>, salt: number) {
    this.#objects = objects[Symbol.iterator]();
    this.#salt = salt;
    this.#first = this.#take();
  }

  /** Makes the next block, which is valid until the one after it; undefined: there are no more objects. */
  *next(): TimeSlicedWork<Buffer | undefined> {
    if (this.#first === undefined) return undefined;
    const writer = this.#writer;
    const least = blockHeaderBytes + objectBytes(this.#first);
    if (writer.bytes.length < least) writer.moveTo(Buffer.allocUnsafeSlow(least), 0);
    else if (writer.bytes.length > targetBytes && least <= targetBytes)
      writer.moveTo(Buffer.allocUnsafeSlow(targetBytes), 0);
    writer.moveTo(writer.bytes, blockHeaderBytes);
    let isAscii = true;
    for (let object: StoredObject | undefined = this.#first; ; ) {
      const { key } = object;
      isAscii &&= Buffer.byteLength(key) === key.length;
      writeRecord(writer, object);
      this.#count++;
      object = this.#take();
      this.#first = object;
      if (object === undefined) break;
      if (writer.position + objectBytes(object) > writer.bytes.length) break;
      if (this.#count % objectsPerStep === 0) yield;
    }
    const block = writer.bytes.subarray(0, writer.position);
    this.#blocks.push(block.length);
    const kind = isAscii ? blockKinds.asciiObjects : blockKinds.objects;
    return sealBlock(block, this.#salt, this.#blocks.length, kind);
  }

  /** The last block, and its size. */
  end(): Buffer {
    const end: SnapshotEnd = { objects: this.#count, blocks: this.#blocks };
    const position = this.#blocks.length + 1;
    const block = textBlock(JSON.stringify(end), this.#salt, position, blockKinds.end);
    const size = Buffer.alloc(4);
    size.writeUInt32LE(block.length);
    return Buffer.concat([block, size]);
  }

  #take(): StoredObject | undefined {
    const next = this.#objects.next();
    return next.done === true ? undefined : next.value;
  }
}

/**
 * Reads the objects of a snapshot whose first block ends at `start`, in time slices. Undefined if anything of it is damaged.
 * The objects are parts of the blocks that were read. Rejects with the signal's reason, or the error of the disk.
 */
export async function readSnapshot(
  file: ReadableFile,
  size: number,
  head: FileHead & { readonly end: number },
  turns: Turns,
  signal: AbortSignal,
): Promise<StoredObject[] | undefined> {
  const end = await readEnd(file, size, head);
  if (end === undefined) return undefined;
  const objects: StoredObject[] = [];
  const reads: Promise<Buffer>[] = [];
  let at = head.end;
  const readNext = (position: number): void => {
    const bytes = end.blocks[position];
    if (bytes === undefined) return;
    const block = Buffer.allocUnsafeSlow(bytes);
    const reading = file.read(block, at).then(() => block);
    // Awaited later, or not at all if another one fails before.
    reading.catch(() => {});
    reads[position] = reading;
    at += bytes;
  };
  for (let i = 0; i < readAhead; i++) readNext(i);
  for (let i = 0; i < end.blocks.length; i++) {
    const block = await (reads[i] as Promise<Buffer>);
    delete reads[i];
    readNext(i + readAhead);
    const isWhole = await turns.run(reads, unpack(block, head.salt, i + 1, objects), signal);
    if (!isWhole) return undefined;
  }
  return objects.length === end.objects ? objects : undefined;
}

async function readEnd(
  file: ReadableFile,
  size: number,
  head: FileHead & { readonly end: number },
): Promise<SnapshotEnd | undefined> {
  const sizeAt = size - 4;
  if (sizeAt < head.end) return undefined;
  const trailer = Buffer.allocUnsafe(4);
  await file.read(trailer, sizeAt);
  const bytes = trailer.readUInt32LE();
  if (bytes > sizeAt - head.end) return undefined;
  const block = Buffer.allocUnsafe(bytes);
  await file.read(block, sizeAt - bytes);
  if (bytes < blockHeaderBytes) return undefined;
  const content = blockAt(block, 0, head.salt, block.readUInt32LE(8));
  if (content?.kind !== blockKinds.end || content.end !== bytes) return undefined;
  const end: SnapshotEnd = JSON.parse(block.toString("utf8", content.start, content.end));
  let total = head.end;
  for (const each of end.blocks) total += each;
  return total === sizeAt - bytes ? end : undefined;
}

/** Adds the objects of a block. Returns whether it is whole. */
function* unpack(
  block: Buffer,
  salt: number,
  position: number,
  objects: StoredObject[],
): TimeSlicedWork<boolean> {
  const content = blockAt(block, 0, salt, position);
  if (content?.end !== block.length) return false;
  const isAscii = content.kind === blockKinds.asciiObjects;
  const cursor = new MessageCursor(block);
  cursor.moveTo(content.start, content.end);
  for (let read = 1; cursor.hasMore; read++) {
    objects.push(readRecord(cursor, isAscii));
    if (read % objectsPerStep === 0) yield;
  }
  return true;
}
