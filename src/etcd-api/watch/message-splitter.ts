import { prefixSize } from "../../wire/encode.ts";

/** The bytes are not messages of gRPC that this process reads. `message` is a sentence. */
export class UnreadableMessage extends Error {}

/** Splits the bytes of a stream into gRPC's messages. Holds at most the bytes of one message that is not complete. */
export class MessageSplitter {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #length = 0;
  /** Size of the message that begins in the chunks, with its prefix; undefined: its prefix is not complete. */
  #needed: number | undefined;

  /** `maxBytes`: maximum size of a message. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Number of bytes that are held. */
  get length(): number {
    return this.#length;
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
  }

  /**
   * Returns the next message, without its prefix; undefined: it is not complete. Throws UnreadableMessage if it is
   * compressed or larger than allowed.
   */
  next(): Buffer | undefined {
    if (this.#needed === undefined) {
      if (this.#length < prefixSize) return undefined;
      const prefix = this.#joined();
      if (prefix[0] !== 0) throw new UnreadableMessage("A message is compressed.");
      const size = prefix.readUInt32BE(1);
      if (size > this.#maxBytes) {
        throw new UnreadableMessage(`A message has ${size} bytes, more than ${this.#maxBytes}.`);
      }
      this.#needed = prefixSize + size;
    }
    const needed = this.#needed;
    if (this.#length < needed) return undefined;
    const bytes = this.#joined();
    this.#needed = undefined;
    this.#length -= needed;
    this.#chunks = this.#length === 0 ? [] : [bytes.subarray(needed)];
    return bytes.subarray(prefixSize, needed);
  }

  #joined(): Buffer {
    const [first] = this.#chunks;
    if (first !== undefined && this.#chunks.length === 1) return first;
    const joined = Buffer.concat(this.#chunks);
    this.#chunks = [joined];
    return joined;
  }
}
