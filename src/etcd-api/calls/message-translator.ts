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
