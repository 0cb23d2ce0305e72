import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
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
