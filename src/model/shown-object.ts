import { bytesFieldSize, WireWriter } from "../protobuf/wire-writer.ts";
import { type ShownAttributes, StoredObject } from "./object.ts";
import { withFieldsForValue } from "./object-encoding.ts";

/*
 * Objects as views show them. They have an encoded form, as all objects that are sent, or one is made of them.
 */

const labelsTag = 0x0a;
const fieldsTag = 0x12;
/** The tags of a map's entry. */
const keyTag = 0x0a;
const valueTag = 0x12;

/** The field `undecodable` of a watchfanout.v1.StoredObject. */
const undecodableField = Uint8Array.of(0x40, 1);

/** The same object with its attributes in place of its value. */
export function withAttributes(
  object: StoredObject,
  { labels, fields }: Pick<ShownAttributes, "fields" | "labels">,
): StoredObject {
  const size = mapSize(labels) + mapSize(fields);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  // The field `attributes`.
  writer.byte(0x3a);
  writer.varint(size);
  writeMap(writer, labelsTag, labels);
  writeMap(writer, fieldsTag, fields);
  return withFieldsForValue(object, writer.bytes);
}

/** The same object without its value, which can't be decoded. */
export function withoutUndecodable(object: StoredObject): StoredObject {
  return withFieldsForValue(object, undecodableField);
}

/** The same object with another value. */
export function withValue(object: StoredObject, value: Uint8Array): StoredObject {
  const { key, createRevision, modRevision, version, lease } = object;
  return new StoredObject(key, value, createRevision, modRevision, version, lease);
}

function mapSize(map: ReadonlyMap<string, string>): number {
  let size = 0;
  for (const [key, value] of map) size += bytesFieldSize(entrySize(key, value));
  return size;
}

function entrySize(key: string, value: string): number {
  return bytesFieldSize(Buffer.byteLength(key)) + bytesFieldSize(Buffer.byteLength(value));
}

function writeMap(writer: WireWriter, tag: number, map: ReadonlyMap<string, string>): void {
  for (const [key, value] of map) {
    writer.byte(tag);
    writer.varint(entrySize(key, value));
    writer.textField(keyTag, key, Buffer.byteLength(key));
    writer.textField(valueTag, value, Buffer.byteLength(value));
  }
}
