import { LENGTH_DELIMITED, MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import type { MessageReader } from "../../wire/message-reader.ts";

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

/** What `read` returns; undefined if what it reads is invalid. */
export function unlessFault<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof WireFault) return undefined;
    throw error;
  }
}

/**
 * Takes the next message; undefined: it has not arrived. Throws UnreadableMessage, as soon as its prefix has arrived, if it is
 * compressed or has more than `maxBytes`.
 */
export function nextMessage(messages: MessageReader, maxBytes: number): Buffer | undefined {
  const { size } = messages;
  if (messages.isCompressed) throw new UnreadableMessage("A message is compressed.");
  if (size > maxBytes) {
    throw new UnreadableMessage(`A message has ${size} bytes, more than ${maxBytes}.`);
  }
  return messages.next();
}

/** A field of an encoded message. */
export interface Field {
  readonly tag: number;
  /** The field with its tag. */
  readonly bytes: Buffer;
  /** The content of a length-delimited field; otherwise empty. */
  readonly content: Buffer;
}

/** The fields of a message, in their order, as views of it. Throws a WireFault. */
export function* fieldsOf(message: Buffer): Generator<Field, void, void> {
  const cursor = new MessageCursor(message);
  for (let from = 0, tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    let content = message.subarray(0, 0);
    if ((tag & 7) === LENGTH_DELIMITED) content = cursor.view();
    else cursor.skip(tag);
    yield { tag, bytes: message.subarray(from, cursor.position), content };
    from = cursor.position;
  }
}
