import { WireWriter } from "../protobuf/wire-writer.ts";

/** Minimum size in bytes of encoded content that is a part of its own; smaller content is copied. */
export const leastInPlace = 8 * 1024;
/**
 * Maximum size of a part in bytes: the payload of an HTTP/2 frame that any client takes. Parts that are cached are sent
 * again and again, and each is a frame's payload as it is.
 */
const maxPartBytes = 16 * 1024;
/** Size of a copied chunk in bytes. Small enough that the allocator reuses freed ones instead of asking the system. */
const chunkBytes = 64 * 1024;

/** Composes a message from encoded content and fields to encode, copying only small content. */
export class PartsWriter {
  readonly #parts: Uint8Array[] = [];
  #chunk = new WireWriter(Buffer.allocUnsafe(0));
  /** The chunk's bytes from here on are not in a part yet. */
  #start = 0;
  /** Number of bytes still to be copied, or more; 0 or less: it is not known. */
  #rest: number;

  /**
   * `size`: size of what will be copied, in bytes. More, as for instance the size of the whole message, wastes memory. 0:
   * it is not known, and each chunk is twice as large as the one before, up to 64 KiB.
   */
  constructor(size: number = 0) {
    this.#rest = size;
  }

  /** Returns a writer with room for this number of bytes, to be written at once. */
  room(size: number): WireWriter {
    const chunk = this.#chunk;
    if (chunk.position + size > chunk.bytes.byteLength) {
      this.#endPart();
      const wanted = this.#rest > 0 ? this.#rest : 2 * chunk.bytes.byteLength;
      const chunkSize = Math.max(size, Math.min(wanted, chunkBytes));
      this.#chunk = new WireWriter(Buffer.allocUnsafe(chunkSize));
      this.#start = 0;
    }
    this.#rest -= size;
    return this.#chunk;
  }

  /** Adds encoded content, which must not change as long as the message may be sent. */
  add(content: Uint8Array, start: number, end: number): void {
    if (end - start < leastInPlace) {
      this.room(end - start).copy(content, start, end);
      return;
    }
    this.#endPart();
    this.#addParts(content, start, end);
  }

  /** Returns the parts of the message. */
  finish(): readonly Uint8Array[] {
    this.#endPart();
    return this.#parts;
  }

  #endPart(): void {
    const { bytes, position } = this.#chunk;
    this.#addParts(bytes, this.#start, position);
    this.#start = position;
  }

  #addParts(bytes: Uint8Array, start: number, end: number): void {
    for (let at = start; at < end; at += maxPartBytes) {
      this.#parts.push(bytes.subarray(at, Math.min(end, at + maxPartBytes)));
    }
  }
}
