import { GrowingBuffer } from "../base/growing-buffer.ts";
import { prefixSize } from "./encode.ts";

/**
 * Splits the bytes of a stream into gRPC's messages. The prefix of a message says whether it is compressed, and its size:
 * before more of it is added, the user of this class compares that with the size that it allows.
 */
export class MessageReader {
  readonly #bytes = new GrowingBuffer();
  #size = 0;

  /** The next message with its prefix, as far as it has arrived, and what follows it. */
  get bytes(): Buffer {
    return this.#bytes.bytes;
  }

  /** Memory of what is held, in bytes. */
  get heldBytes(): number {
    return this.#bytes.memoryBytes;
  }

  /** Size of the next message, as its prefix states, in bytes; 0 until its prefix has arrived. */
  get size(): number {
    return this.#size;
  }

  /** Number of bytes behind the prefix of the next message, of which some may follow that message. */
  get received(): number {
    return this.#bytes.length - prefixSize;
  }

  /** Whether the next message has arrived. */
  get isWhole(): boolean {
    return this.received >= this.#size;
  }

  /** Whether the next message is compressed. False until its prefix has arrived. */
  get isCompressed(): boolean {
    return this.received >= 0 && this.#bytes.bytes[0] !== 0;
  }

  /** Adds the bytes that follow, which must not change later. */
  add(chunk: Buffer): void {
    const isFirst = this.#bytes.length === 0;
    this.#bytes.append(chunk, prefixSize + this.#size);
    this.#readSize();
    // A chunk is a view of all that was read from the socket at once, which an incomplete message must not keep alive.
    if (isFirst && !this.isWhole) this.#bytes.reserve(chunk.length);
  }

  /** Takes the next message, without its prefix; undefined: it has not arrived. */
  next(): Buffer | undefined {
    if (!this.isWhole) return undefined;
    const end = prefixSize + this.#size;
    const message = this.#bytes.bytes.subarray(prefixSize, end);
    this.#bytes.drop(end);
    this.#size = 0;
    this.#readSize();
    return message;
  }

  /** Makes what is held keep no larger buffer alive. */
  own(): void {
    this.#bytes.own();
  }

  clear(): void {
    this.#bytes.clear();
    this.#size = 0;
  }

  #readSize(): void {
    if (this.#size === 0 && this.received >= 0) this.#size = this.#bytes.bytes.readUInt32BE(1);
  }
}

/** Collects the bytes of a request that is one message without a prefix, as `MessageReader` those of others. */
export class BareMessageReader {
  readonly isWhole = false;
  readonly isCompressed = false;
  readonly #bytes = new GrowingBuffer();

  get bytes(): Buffer {
    return this.#bytes.bytes;
  }

  get heldBytes(): number {
    return this.#bytes.memoryBytes;
  }

  get size(): number {
    return this.#bytes.length;
  }

  get received(): number {
    return this.#bytes.length;
  }

  add(chunk: Buffer): void {
    this.#bytes.append(chunk, Infinity);
  }

  own(): void {
    this.#bytes.own();
  }

  clear(): void {
    this.#bytes.clear();
  }
}
