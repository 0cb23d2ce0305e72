import { varintSize, WireWriter } from "./wire-writer.ts";

/*
 * Fields as bytes of their own, for messages that are not worth the computation of their size in advance.
 */

export const none: Buffer = Buffer.alloc(0);

/** Encodes a length-delimited field whose content is these parts. */
export function bytesField(tag: number, ...content: readonly Uint8Array[]): Buffer {
  const size = content.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const writer = new WireWriter(Buffer.allocUnsafe(varintSize(tag) + varintSize(size) + size));
  writer.varint(tag);
  writer.varint(size);
  for (const part of content) writer.raw(part);
  return writer.bytes;
}

/** The most bytes of a tag and a number. */
const maxNumberField = 16;

/** Encodes a field with a number of up to 64 bits, which is there also if it is 0. */
export function numberField(tag: number, value: number | bigint): Buffer {
  const writer = new WireWriter(Buffer.allocUnsafe(maxNumberField));
  writer.varint(tag);
  writer.bigVarint(BigInt.asUintN(64, BigInt(value)));
  return writer.bytes.subarray(0, writer.position);
}

/** Encodes a field with a number as proto3 has it: empty for 0, which is left out. */
export function number(tag: number, value: number | bigint): Buffer {
  return value === 0 || value === 0n ? none : numberField(tag, value);
}

/** Encodes a field with a text as proto3 has it: empty for "", which is left out. */
export function text(tag: number, content: string): Buffer {
  return content === "" ? none : bytesField(tag, Buffer.from(content));
}
