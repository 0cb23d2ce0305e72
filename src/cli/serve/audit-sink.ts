import { fstatSync } from "node:fs";
import sonicBoom, { type SonicBoom } from "sonic-boom";
import type { Clock } from "../../base/clock.ts";
import { Fifo } from "../../base/fifo.ts";

/** How long closing waits for the last lines, in milliseconds. */
const maxCloseMs = 2_000;

/** A line that is not written yet. */
export interface UnwrittenLine {
  /** The caller that it is charged to. */
  readonly caller: string;
  readonly bytes: number;
}

/** What a sink reports. */
export interface AuditSinkEvents {
  /** A line was written. */
  written(line: UnwrittenLine): void;
  /** A line will not be written, since the file was closed before it took it. */
  lost(line: UnwrittenLine): void;
  failed(error: Error): void;
}

/** Writes lines to one open file, without waiting for it, and reports which were written. */
export class AuditSink {
  /** The device and inode of the file. */
  readonly file: string;
  readonly #sink: SonicBoom;
  readonly #events: AuditSinkEvents;
  readonly #lines = new Fifo<UnwrittenLine>();
  /** Bytes of the first line that were written already. */
  #written = 0;

  /** Takes over a file descriptor. */
  constructor(fd: number, events: AuditSinkEvents) {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    this.file = `${dev} ${ino}`;
    this.#events = events;
    // Not pino's destination: at the exit of the process that would write to a full disk until it takes all lines.
    this.#sink = new sonicBoom.SonicBoom({ fd, sync: false });
    this.#sink.on("error", (error: Error) => events.failed(error));
    this.#sink.on("write", (bytes: number) => this.#wrote(bytes));
  }

  /** `text` is one line with its line break. */
  write(text: string, line: UnwrittenLine): void {
    this.#lines.push(line);
    this.#sink.write(text);
  }

  /** Writes the remaining lines, for up to 2 s, and closes the file. Never rejects. Call it once. */
  async close(clock: Clock): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = clock.setTimeout(resolve, maxCloseMs);
      const done = (): void => {
        timer.cancel();
        resolve();
      };
      this.#sink.once("close", done).once("error", done);
      this.#sink.end();
    });
    // Drops what the file does not take.
    this.#sink.destroy();
    for (let line = this.#lines.shift(); line !== undefined; line = this.#lines.shift()) {
      this.#events.lost(line);
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
}
