import { LENGTH_DELIMITED, MessageCursor } from "../../protobuf/message-cursor.ts";
import { varintSize, WireWriter } from "../../protobuf/wire-writer.ts";

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

/** Encodes a length-delimited field whose content is these parts. */
export function bytesField(tag: number, ...content: readonly Uint8Array[]): Buffer {
  const size = content.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const writer = new WireWriter(Buffer.allocUnsafe(varintSize(tag) + varintSize(size) + size));
  writer.varint(tag);
  writer.varint(size);
  for (const part of content) writer.raw(part);
  return writer.bytes;
}
