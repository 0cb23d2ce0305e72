import { nextMessage } from "../../etcd/wire/messages.ts";
import type { Translate } from "../../etcd/wire/namespace.ts";
import { WireWriter } from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import { MessageReader } from "../../wire/message-reader.ts";

/** Translates the messages of one direction of a call as its bytes pass. Holds a message until it has arrived completely. */
export class MessageTranslator {
  readonly #messages = new MessageReader();
  readonly #translate: Translate;
  readonly #maxBytes: number;

  constructor(translate: Translate, maxBytes: number) {
    this.#translate = translate;
    this.#maxBytes = maxBytes;
  }

  /** Memory of a message that has not arrived completely, in bytes. */
  get heldBytes(): number {
    return this.#messages.heldBytes;
  }

  /** Whether a part of a message has arrived. */
  get isMidMessage(): boolean {
    return this.#messages.bytes.length > 0;
  }

  /**
   * Takes the bytes that follow. Returns the messages that are complete with them, with gRPC's prefix. Throws an
   * UnreadableMessage for one that is compressed or too large, and a WireFault for one that can't be translated.
   */
  pass(bytes: Buffer): Buffer[] {
    const messages = this.#messages;
    messages.add(bytes);
    const frames: Buffer[] = [];
    for (;;) {
      const message = nextMessage(messages, this.#maxBytes);
      if (message === undefined) break;
      const frame = this.#translate(message, prefixSize);
      new WireWriter(frame).prefix(frame.length - prefixSize);
      frames.push(frame);
    }
    messages.own();
    return frames;
  }
}

/** How many bytes of a message are looked at: a ResponseHeader, also one that is nested, takes at most 60. */
const maxStartBytes = 64;

/** Finds out how the messages of a response begin, and whether one is incomplete, as its bytes pass. */
export class MessageStarts {
  readonly #onStart: (start: Buffer) => void;
  /** The beginning of the current message, with gRPC's prefix, as far as it has passed. */
  readonly #start = Buffer.alloc(prefixSize + maxStartBytes);
  #length = 0;
  /** Number of bytes of the current message that are yet to pass and are not looked at. */
  #rest = 0;

  /** `onStart` gets the beginning of each message, with gRPC's prefix. It may read the bytes until it returns. */
  constructor(onStart: (start: Buffer) => void) {
    this.#onStart = onStart;
  }

  /** Whether a part of a message has passed. */
  get isMidMessage(): boolean {
    return this.#rest > 0 || this.#length > 0;
  }

  /** The next bytes of the response. */
  pass(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) {
      const skipped = Math.min(this.#rest, bytes.length - at);
      this.#rest -= skipped;
      at += skipped;
      if (this.#rest === 0) at += this.#collect(bytes, at);
    }
  }

  /** Returns the number of bytes that it has taken. */
  #collect(bytes: Buffer, from: number): number {
    const end = from + this.#wanted - this.#length;
    const taken = bytes.copy(this.#start, this.#length, from, end);
    this.#length += taken;
    if (this.#length < prefixSize || this.#length < this.#wanted) return taken;
    this.#onStart(this.#start.subarray(0, this.#length));
    this.#rest = this.#size - this.#length;
    this.#length = 0;
    return taken;
  }

  /** Size of the current message with its prefix, which has passed. */
  get #size(): number {
    return prefixSize + this.#start.readUInt32BE(1);
  }

  get #wanted(): number {
    return this.#length < prefixSize ? prefixSize : Math.min(this.#size, this.#start.length);
  }
}
