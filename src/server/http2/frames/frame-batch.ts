import type { Socket } from "node:net";
import { frameHeadBytes, frameType, writeFrameHead } from "./frame-format.ts";
import type { FramedStream } from "./framed-stream.ts";

/** A frame's payload up to this size is copied behind its head, in bytes: that is cheaper than a piece of its own. */
export const copiedBytes = 2 * 1024;

/**
 * The DATA frames of one write. One for all connections: it is planned, written and cleared in one go.
 */
export class FrameBatch {
  readonly #streams: FramedStream[] = [];
  readonly #lengths: number[] = [];
  #count = 0;
  /** Bytes that are copied: heads and small payloads. */
  #copied = 0;
  #isInPieces = false;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  /** Adds a frame with the next `length` bytes of a stream's message. */
  add(stream: FramedStream, length: number): void {
    this.#streams[this.#count] = stream;
    this.#lengths[this.#count] = length;
    this.#count++;
    this.#copied += frameHeadBytes;
    if (length <= copiedBytes) this.#copied += length;
    else this.#isInPieces = true;
  }

  /** Writes the frames to the socket at once, and clears the batch. */
  write(socket: Socket, onWritten: (error?: Error | null) => void): void {
    const copies = Buffer.allocUnsafe(this.#copied);
    if (this.#isInPieces) socket.cork();
    let at = 0;
    /** What is before has been written. */
    let from = 0;
    for (let i = 0; i < this.#count; i++) {
      const stream = this.#streams[i] as FramedStream;
      const length = this.#lengths[i] as number;
      writeFrameHead(copies, at, length, frameType.data, stream.id);
      at += frameHeadBytes;
      if (length <= copiedBytes) {
        stream.copy(length, copies, at);
        at += length;
        continue;
      }
      socket.write(copies.subarray(from, at));
      from = at;
      for (let left = length; left > 0; ) {
        const piece = stream.take(left);
        left -= piece.byteLength;
        // The callback is for the last piece.
        if (left === 0 && i === this.#count - 1) socket.write(piece, onWritten);
        else socket.write(piece);
      }
    }
    if (at > from) socket.write(from === 0 ? copies : copies.subarray(from, at), onWritten);
    if (this.#isInPieces) socket.uncork();
    this.#clear();
  }

  #clear(): void {
    // The array stays, without the streams.
    this.#streams.fill(undefined as never, 0, this.#count);
    this.#count = 0;
    this.#copied = 0;
    this.#isInPieces = false;
  }
}
