import { GrowingBuffer } from "../../base/growing-buffer.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { prefixSize } from "../../wire/encode.ts";

/** The bytes are not messages of gRPC that this process reads. `message` is a sentence. */
export class UnreadableMessage extends Error {}

/** Reads a message of this name. Throws UnreadableMessage if it is invalid, or a number in it can't be held exactly. */
export function decoding<Message>(
  name: string,
  message: Buffer,
  read: (cursor: MessageCursor) => Message,
): Message {
  try {
    return read(new MessageCursor(message));
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
    const details = `the ${name} of ${message.length} bytes ${error.message}`;
    throw new UnreadableMessage(details, { cause: error });
  }
}

/** Splits the bytes of a stream into gRPC's messages. Holds at most the bytes of one message that is not complete. */
export class MessageSplitter {
  readonly #maxBytes: number;
  readonly #bytes = new GrowingBuffer();
  /** Size of the message that is next, with its prefix; 0: its prefix is not known. */
  #needed = 0;

  /** `maxBytes`: maximum size of a message. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Memory of what is held, in bytes. */
  get heldBytes(): number {
    return this.#bytes.memoryBytes;
  }

  /** Makes what is held keep no larger buffer alive. */
  own(): void {
    this.#bytes.own();
  }

  /** Adds the bytes that follow, which must not change later. */
  add(chunk: Buffer): void {
    this.#bytes.append(chunk, this.#needed);
  }

  /**
   * Returns the next message, without its prefix; undefined: it is not complete. Throws UnreadableMessage if it is compressed
   * or larger than allowed.
   */
  next(): Buffer | undefined {
    const { length } = this.#bytes;
    if (this.#needed === 0 && length >= prefixSize) this.#needed = this.#nextSize();
    if (this.#needed === 0 || length < this.#needed) return undefined;
    const message = this.#bytes.bytes.subarray(prefixSize, this.#needed);
    this.#bytes.drop(this.#needed);
    this.#needed = 0;
    return message;
  }

  #nextSize(): number {
    const prefix = this.#bytes.bytes;
    if (prefix[0] !== 0) throw new UnreadableMessage("A message is compressed.");
    const size = prefix.readUInt32BE(1);
    if (size > this.#maxBytes) {
      throw new UnreadableMessage(`A message has ${size} bytes, more than ${this.#maxBytes}.`);
    }
    return prefixSize + size;
  }
}
