import { close, fstat, fstatSync, fsync, write } from "node:fs";
import { promisify } from "node:util";
import { type Clock, pause } from "../../base/clock.ts";
import { systemCode, toError } from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import { settledWithin } from "../../base/wait.ts";

/** How long closing waits for the last lines, in milliseconds. */
const maxCloseMs = 2_000;

/** Maximum size of one write, in UTF-16 code units, unless one line is longer. */
const maxWriteLength = 64 * 1024;

/** Pause before a pipe that is full is written to again, in milliseconds. */
const fullPipeMs = 100;

/** A line that is not written yet. */
export interface UnwrittenLine {
  /** With its line break. */
  readonly text: string;
  /** The caller that it is charged to. */
  readonly caller: string;
  readonly bytes: number;
}

/** What a sink reports. */
export interface AuditSinkEvents {
  /** A line was written. */
  written(line: UnwrittenLine): void;
  /** A line will not be written, since the file did not take it before the end of the process. */
  lost(line: UnwrittenLine): void;
  /** A write has failed. Its lines wait for `retry`. */
  failed(error: Error): void;
}

/**
 * Writes lines to one open file, without waiting for it, and reports which were written. One write is in progress at a
 * time, made by a thread of libuv. Not SonicBoom, the destination of pino, which does not retry after an error, and can't
 * pass its lines on to another file.
 */
export class AuditSink {
  /** The device and inode of the file. */
  readonly file: string;
  readonly #fd: number;
  readonly #clock: Clock;
  readonly #events: AuditSinkEvents;
  readonly #lines = new Fifo<UnwrittenLine>();
  /** Bytes of the first line that were written already. */
  #written = 0;
  /** The last writes that were begun. Never rejects. */
  #writing: Promise<void> = Promise.resolve();
  #isWriting = false;
  #hasFailed = false;
  #isPaused = false;
  #isClosed = false;

  /** Takes over a file descriptor. */
  constructor(fd: number, clock: Clock, events: AuditSinkEvents) {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    this.file = `${dev} ${ino}`;
    this.#fd = fd;
    this.#clock = clock;
    this.#events = events;
  }

  write(line: UnwrittenLine): void {
    if (this.#isClosed) {
      this.#events.lost(line);
      return;
    }
    this.#lines.push(line);
    if (!this.#hasFailed) this.#begin();
  }

  /** Writes the lines that wait since a write has failed. */
  retry(): void {
    this.#hasFailed = false;
    this.#begin();
  }

  /** Lets lines wait in memory, beside those that are being written, or writes them again. Idempotent. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused && !this.#hasFailed) this.#begin();
  }

  /** Whether the file was deleted, so that what is written to it can't be read. */
  async isDeleted(): Promise<boolean> {
    return (await promisify(fstat)(this.#fd)).nlink === 0;
  }

  /**
   * Passes the lines that are not written on to another sink, after the write in progress, and closes the file. A line that
   * was written in part is passed on as a whole. Never rejects. Call it once.
   */
  async moveTo(next: AuditSink): Promise<void> {
    this.#isPaused = true;
    await this.#writing;
    this.#isClosed = true;
    for (const line of this.#unwritten()) next.write(line);
    await this.#closeFile();
  }

  /** Writes the remaining lines, for up to 2 s, and closes the file. Never rejects. Call it once. */
  async close(): Promise<void> {
    this.retry();
    await settledWithin(this.#writing, this.#clock, maxCloseMs);
    this.#isClosed = true;
    for (const line of this.#unwritten()) this.#events.lost(line);
    // While a thread still writes, the descriptor must not become that of another file.
    if (!this.#isWriting) await this.#closeFile();
  }

  #begin(): void {
    if (this.#isWriting || this.#isPaused || this.#lines.length === 0) return;
    this.#isWriting = true;
    this.#writing = this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    try {
      while (this.#lines.length > 0 && !this.#isPaused && !this.#isClosed) {
        const bytes = await this.#writeSome();
        if (bytes === 0) await pause(this.#clock, fullPipeMs);
        else this.#wrote(bytes);
      }
    } catch (error) {
      this.#hasFailed = true;
      this.#events.failed(toError(error));
    } finally {
      this.#isWriting = false;
    }
  }

  /** Returns the number of bytes that were written: 0 if a pipe is full. */
  async #writeSome(): Promise<number> {
    let text = "";
    for (let i = 0; i < this.#lines.length && text.length < maxWriteLength; i++) {
      text += this.#lines.at(i)?.text ?? "";
    }
    try {
      const { bytesWritten } = await promisify(write)(
        this.#fd,
        Buffer.from(text).subarray(this.#written),
      );
      return bytesWritten;
    } catch (error) {
      if (systemCode(error) === "EAGAIN") return 0;
      throw error;
    }
  }

  #wrote(bytes: number): void {
    this.#written += bytes;
    for (let line = this.#lines.at(0); line !== undefined; line = this.#lines.at(0)) {
      if (line.bytes > this.#written) return;
      this.#written -= line.bytes;
      this.#lines.shift();
      this.#events.written(line);
    }
  }

  *#unwritten(): Generator<UnwrittenLine> {
    for (let line = this.#lines.shift(); line !== undefined; line = this.#lines.shift()) {
      yield line;
    }
  }

  async #closeFile(): Promise<void> {
    // Some files, such as pipes, do not support it.
    await promisify(fsync)(this.#fd).catch(() => {});
    if (this.#fd !== process.stdout.fd) await promisify(close)(this.#fd).catch(() => {});
  }
}
