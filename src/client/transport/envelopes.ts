import { codes } from "../../base/grpc-codes.ts";
import { type CallError, callError } from "../../wire/call-error.ts";

/** Size of what precedes each message of a stream, in bytes: flags, and the length of the message. */
const headBytes = 5;

const compressedFlag = 1;
const endFlag = 2;

/** One message of a stream. */
interface Envelope {
  /** Whether it is the last one, which has the outcome of the call in JSON. */
  readonly isEnd: boolean;
  readonly content: Uint8Array;
}

/** Takes the messages of a Connect stream out of its body, which is read as they are asked for. */
export class Envelopes {
  readonly #reader: Pick<ReadableStreamDefaultReader<Uint8Array>, "read">;
  readonly #maxBytes: number;
  /** What was read last, and the position of what was not taken of it. */
  #chunk = new Uint8Array(0);
  #at = 0;

  /** `maxBytes`: of one message. */
  constructor(reader: Pick<ReadableStreamDefaultReader<Uint8Array>, "read">, maxBytes: number) {
    this.#reader = reader;
    this.#maxBytes = maxBytes;
  }

  /** Undefined: the body has ended, maybe within a message. Rejects with a CallError for a message that is not accepted. */
  async next(): Promise<Envelope | undefined> {
    const head = await this.#take(headBytes);
    if (head === undefined) return undefined;
    const [flags = 0] = head;
    const size = new DataView(head.buffer, head.byteOffset, headBytes).getUint32(1);
    if (size > this.#maxBytes) throw tooLarge(size, this.#maxBytes);
    if ((flags & compressedFlag) !== 0) {
      throw callError(codes.INTERNAL, "It sent a compressed message, which was not asked for.");
    }
    const content = await this.#take(size);
    return content && { isEnd: (flags & endFlag) !== 0, content };
  }

  /** The next bytes: a view, if they came together. */
  async #take(size: number): Promise<Uint8Array | undefined> {
    if (this.#at + size <= this.#chunk.byteLength) return this.#part(size);
    const bytes = new Uint8Array(size);
    for (let filled = 0; ; ) {
      const part = this.#part(Math.min(size - filled, this.#chunk.byteLength - this.#at));
      bytes.set(part, filled);
      filled += part.byteLength;
      if (filled === size) return bytes;
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#chunk = value as Uint8Array<ArrayBuffer>;
      this.#at = 0;
    }
  }

  #part(size: number): Uint8Array {
    const part = this.#chunk.subarray(this.#at, this.#at + size);
    this.#at += size;
    return part;
  }
}

/** The messages of a stream as its body. */
export function enveloped(messages: readonly Uint8Array[]): Uint8Array {
  const parts = messages.flatMap((message) => {
    const head = new Uint8Array(headBytes);
    new DataView(head.buffer).setUint32(1, message.byteLength);
    return [head, message];
  });
  return joined(parts);
}

/** All parts, one behind the other. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return bytes;
}

/** The refusal of a message, in the words of grpc-js. */
export function tooLarge(size: number, maxBytes: number): CallError {
  return callError(
    codes.RESOURCE_EXHAUSTED,
    `Received message larger than max (${size} vs ${maxBytes})`,
  );
}
