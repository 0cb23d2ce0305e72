import type { Clock, Timer } from "../base/clock.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { Fifo } from "../base/fifo.ts";
import type { WatchBatch } from "../model/event.ts";
import { MessageCursor } from "../protobuf/message-cursor.ts";
import { WireWriter } from "../protobuf/wire-writer.ts";
import {
  blockAt,
  blockHeaderBytes,
  blockKinds,
  type FileHead,
  headBlock,
  sealBlock,
} from "./blocks.ts";
import type { Budget } from "./budget.ts";
import type { Disk, WritableFile } from "./disk.ts";
import {
  batchBytes,
  historyBytes,
  type LogRecord,
  readLogRecord,
  writeBatch,
  writeHistory,
} from "./records.ts";
import { NoSpace } from "./snapshot-file.ts";

/** Sizes of the blocks, in bytes. A cache with few events gets small ones. One object keeps its block in memory. */
const smallestBlock = 4 * 1024;
const largestBlock = 128 * 1024;

/** How long what was appended waits for more, in milliseconds. */
const flushMs = 500;

export interface LogWriting {
  readonly disk: Disk;
  readonly clock: Clock;
  /** For what is not written yet. */
  readonly memory: Budget;
  readonly space: Budget;
  /** Called once: nothing more is written, and the file ends with something that was appended before. */
  readonly onBroken: (error: unknown) => void;
}

/** Why a log ends before what was appended: the disk is slower than the events for too long. */
export class TooSlow extends Error {}

/**
 * Writes a log. What is appended is written later, in order, by a thread. It never waits: if there is no room in memory for
 * what is not written yet, the log is broken. A block that a crash cuts off is not read again, so the log always ends after a
 * whole batch.
 */
export class LogFile {
  readonly #writing: LogWriting;
  readonly #path: string;
  readonly #salt: number;
  readonly #writer = new WireWriter(Buffer.alloc(0));
  /** Whole blocks that are not written. */
  readonly #blocks = new Fifo<Buffer>();
  #blockBytes = smallestBlock;
  #position = 0;
  #bytes = 0;
  #writtenBytes = 0;
  #timer: Timer | undefined;
  #file: WritableFile | undefined;
  /** Whether the current block is due although it has room. */
  #isDue = false;
  #isPumping = false;
  #pumping: Promise<void> | undefined;
  #isBroken = false;

  constructor(path: string, head: FileHead, writing: LogWriting) {
    this.#path = path;
    this.#salt = head.salt;
    this.#writing = writing;
    const block = headBlock(head);
    writing.memory.count(block.length);
    this.#push(block);
  }

  /** What was appended, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** What was written, in bytes. */
  get writtenBytes(): number {
    return this.#writtenBytes;
  }

  append(batch: WatchBatch, syncedAt: number): void {
    if (!this.#reserve(batchBytes(batch))) return;
    writeBatch(this.#writer, batch, syncedAt);
    this.#schedule();
  }

  identify(historyId: string): void {
    if (!this.#reserve(historyBytes(historyId))) return;
    writeHistory(this.#writer, historyId);
    this.#schedule();
  }

  /** Resolves when everything is written, or the log is broken, and the file is closed. */
  async end(isSynced: boolean): Promise<void> {
    this.#flush();
    await this.#pumping;
    const file = this.#file;
    this.#file = undefined;
    try {
      if (isSynced && !this.#isBroken) await file?.sync();
      await file?.close();
    } catch (error) {
      this.#break(error);
    }
  }

  /** Writes nothing more after the write in progress. */
  abandon(): void {
    this.#isBroken = true;
    this.#drop();
  }

  /** Makes room for so many bytes in the current block. Returns false if the log is broken. */
  #reserve(bytes: number): boolean {
    const writer = this.#writer;
    if (this.#isBroken) return false;
    if (writer.position + bytes <= writer.bytes.length) return true;
    if (writer.position > 0) {
      this.#blockBytes = Math.min(this.#blockBytes * 2, largestBlock);
      this.#seal();
      this.#startPump();
    }
    const size = Math.max(this.#blockBytes, blockHeaderBytes + bytes);
    if (!this.#take(size)) return false;
    writer.moveTo(Buffer.allocUnsafeSlow(size), blockHeaderBytes);
    return true;
  }

  #take(bytes: number): boolean {
    if (this.#writing.memory.take(bytes)) return true;
    this.#break(new TooSlow("The disk is slower than the events."));
    return false;
  }

  #schedule(): void {
    this.#timer ??= this.#writing.clock.setTimeout(() => {
      this.#blockBytes = smallestBlock;
      this.#flush();
    }, flushMs);
  }

  /** Begins to write what was appended, when the writes before are done. */
  #flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isDue = true;
    this.#startPump();
  }

  #startPump(): void {
    if (this.#isPumping || this.#isBroken) return;
    this.#isPumping = true;
    this.#pumping = this.#pump();
  }

  /** Ends the current block. */
  #seal(): void {
    this.#isDue = false;
    const writer = this.#writer;
    const { bytes, position } = writer;
    if (position === 0 || this.#isBroken) return;
    this.#writing.memory.release(bytes.length - position);
    writer.moveTo(nothing, 0);
    const block = bytes.subarray(0, position);
    this.#push(sealBlock(block, this.#salt, this.#position, blockKinds.batches));
  }

  #push(block: Buffer): void {
    this.#position++;
    this.#bytes += block.length;
    this.#blocks.push(block);
  }

  /** Writes the blocks one after another. Never rejects. */
  async #pump(): Promise<void> {
    try {
      this.#file ??= await this.#writing.disk.create(this.#path);
      for (let block = this.#next(); block !== undefined; block = this.#next()) {
        await this.#write(this.#file, block);
      }
    } catch (error) {
      this.#break(error);
    } finally {
      this.#isPumping = false;
    }
  }

  #next(): Buffer | undefined {
    if (this.#blocks.length === 0 && this.#isDue) this.#seal();
    return this.#blocks.shift();
  }

  async #write(file: WritableFile, block: Buffer): Promise<void> {
    const { memory, space } = this.#writing;
    try {
      if (!space.take(block.length))
        throw new NoSpace("There is no room for the log within its bound.");
      this.#writtenBytes += block.length;
      await file.write(block);
    } finally {
      memory.release(block.length);
    }
  }

  #break(error: unknown): void {
    if (this.#isBroken) return;
    this.abandon();
    this.#writing.onBroken(error);
  }

  #drop(): void {
    const { memory } = this.#writing;
    this.#timer?.cancel();
    memory.release(this.#writer.bytes.length);
    this.#writer.moveTo(nothing, 0);
    for (let block = this.#blocks.shift(); block !== undefined; block = this.#blocks.shift()) {
      memory.release(block.length);
    }
  }
}

const nothing = Buffer.alloc(0);

/**
 * Reads the records of a log whose first block ends at `head.end`, in time slices, up to the first block that is damaged or
 * missing. Each block is copied, so that an object does not keep all of `bytes` in memory. Throws a WireFault.
 */
export function* readLog(
  bytes: Buffer,
  head: FileHead & { readonly end: number },
  take: (record: LogRecord) => void,
): TimeSlicedWork<void> {
  let at = head.end;
  for (let position = 1; ; position++) {
    const block = blockAt(bytes, at, head.salt, position);
    if (block === undefined) return;
    const content = Buffer.allocUnsafeSlow(block.end - block.start);
    bytes.copy(content, 0, block.start, block.end);
    const cursor = new MessageCursor(content);
    while (cursor.hasMore) {
      take(readLogRecord(cursor));
      yield;
    }
    at = block.end;
  }
}
