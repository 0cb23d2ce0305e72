import { WireWriter } from "../protobuf/wire-writer.ts";

/** What is at least so long, in bytes, is a part as it lies; the rest is copied together. */
export const leastInPlace = 8 * 1024;
/** Small enough that a freed one is soon used again, where a large one would be asked of the system anew. */
const chunkBytes = 64 * 1024;

/** Puts a message together out of what is encoded already and what is not, copying only what is small. */
export class PartsWriter {
  readonly #parts: Uint8Array[] = [];
  #chunk = new WireWriter(Buffer.allocUnsafe(0));
  /** From here on the chunk is not among the parts yet. */
  #start = 0;
  /** How much is yet to come. */
  #rest: number;

  /** `size` is that of all that is going to be written, in bytes. */
  constructor(size: number) {
    this.#rest = size;
  }

  /** A writer that so many bytes are to be written with at once. */
  room(size: number): WireWriter {
    const chunk = this.#chunk;
    if (chunk.position + size > chunk.bytes.byteLength) {
      this.#endPart();
      const chunkSize = Math.max(size, Math.min(this.#rest, chunkBytes));
      this.#chunk = new WireWriter(Buffer.allocUnsafe(chunkSize));
      this.#start = 0;
    }
    this.#rest -= size;
    return this.#chunk;
  }

  /** Adds what is encoded already, which must not change as long as the message may be sent. */
  add(content: Uint8Array, start: number, end: number): void {
    if (end - start < leastInPlace) {
      this.room(end - start).copy(content, start, end);
      return;
    }
    this.#endPart();
    this.#parts.push(content.subarray(start, end));
    this.#rest -= end - start;
  }

  /** The parts of the message. */
  finish(): readonly Uint8Array[] {
    this.#endPart();
    return this.#parts;
  }

  #endPart(): void {
    const { bytes, position } = this.#chunk;
    if (position > this.#start) this.#parts.push(bytes.subarray(this.#start, position));
    this.#start = position;
  }
}
