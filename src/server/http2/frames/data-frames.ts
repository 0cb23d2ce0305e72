import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
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

/** Small messages that a connection has accepted and writes together, each in a DATA frame. */
export class AcceptedFrames {
  readonly #ids: number[] = [];
  readonly #messages: Uint8Array[] = [];
  #count = 0;
  #bytes = 0;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  add(id: number, message: Uint8Array): void {
    this.#ids[this.#count] = id;
    this.#messages[this.#count] = message;
    this.#count++;
    this.#bytes += frameHeadBytes + message.byteLength;
  }

  /** Writes the frames to the socket at once, and clears them. */
  write(socket: Socket, buffers: WriteBuffers): void {
    const buffer = buffers.acquire(this.#bytes);
    let at = 0;
    for (let i = 0; i < this.#count; i++) {
      const message = this.#messages[i] as Uint8Array;
      writeFrameHead(buffer, at, message.byteLength, frameType.data, this.#ids[i] as number);
      buffer.set(message, at + frameHeadBytes);
      at += frameHeadBytes + message.byteLength;
    }
    // The array stays, without the messages.
    this.#messages.fill(undefined as never, 0, this.#count);
    this.#count = 0;
    this.#bytes = 0;
    const frames = buffer.subarray(0, at);
    if (socket instanceof TLSSocket) {
      // It writes in the next turn of the event loop.
      socket.write(frames, () => buffers.release(buffer));
      return;
    }
    socket.write(frames);
    if (socket.writableLength === 0) buffers.release(buffer);
    else buffers.discard(buffer);
  }
}

/**
 * The last small message in its DATA frame. One for all connections: those with a single stream usually have the same
 * stream id, and most are sent the same message.
 */
export class SharedFrame {
  #id = 0;
  #message: Uint8Array | undefined;
  #frame: Buffer | undefined;

  /** Returns the frame, which is not changed any more. */
  of(id: number, message: Uint8Array): Buffer {
    if (this.#frame !== undefined && this.#message === message && this.#id === id) {
      return this.#frame;
    }
    const frame = Buffer.allocUnsafe(frameHeadBytes + message.byteLength);
    writeFrameHead(frame, 0, message.byteLength, frameType.data, id);
    frame.set(message, frameHeadBytes);
    this.#id = id;
    this.#message = message;
    this.#frame = frame;
    return frame;
  }
}

/** Size of the largest buffers, in bytes. */
export const writeBufferBytes = 64 * 1024;

/** A few sizes, so that a buffer that a socket holds for long has 4 KiB, or at most four times as much as needed. */
const sizes = [4 * 1024, 16 * 1024, writeBufferBytes];

/** Maximum number of buffers of each size that are reused. Only connections with TLS use more than one at a time. */
const maxOfSize = 32;

/** The buffers of one size. */
class SizeClass {
  readonly bytes: number;
  /** Those that are free, or in use and not discarded. */
  readonly #all = new Set<Buffer>();
  readonly #free: Buffer[] = [];

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  acquire(bytes: number): Buffer {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#all.size === maxOfSize) return Buffer.allocUnsafeSlow(bytes);
    const buffer = Buffer.allocUnsafeSlow(this.bytes);
    this.#all.add(buffer);
    return buffer;
  }

  release(buffer: Buffer): void {
    if (this.#all.has(buffer)) this.#free.push(buffer);
  }

  discard(buffer: Buffer): void {
    this.#all.delete(buffer);
  }
}

/**
 * Buffers for small messages that are copied to be written together. They are reused once they are written: short-lived
 * ones are memory outside of V8's heap, and let it collect the whole heap every second.
 */
export class WriteBuffers {
  readonly #classes = sizes.map((bytes) => new SizeClass(bytes));

  /** Returns a buffer of at least `bytes` bytes, of which there are at most `writeBufferBytes`. */
  acquire(bytes: number): Buffer {
    const sizeClass = this.#classes.find((each) => bytes <= each.bytes);
    return sizeClass?.acquire(bytes) ?? Buffer.allocUnsafeSlow(bytes);
  }

  /** The buffer has been written. Call it once. */
  release(buffer: Buffer): void {
    for (const each of this.#classes) each.release(buffer);
  }

  /** The socket holds the buffer for an unknown time. It is not reused. */
  discard(buffer: Buffer): void {
    for (const each of this.#classes) each.discard(buffer);
  }
}
