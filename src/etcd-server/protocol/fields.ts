import { keyValueSize, writeKeyValue } from "../../etcd/wire/key-value.ts";
import type { StoredObject } from "../../model/object.ts";
import { none, numberField } from "../../protobuf/fields.ts";
import { bytesFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";

/*
 * Fields of etcd's responses, in the bytes that etcd writes: numbers that are 0 are left out. Keys of objects are whole, so
 * the prefix of their resource is empty.
 */

/** A field that is there if it is true. */
export function flag(tag: number, isSet: boolean): Buffer {
  return isSet ? numberField(tag, 1) : none;
}

/** A field with an object, as a KeyValue with its value. */
export function keyValue(tag: number, object: StoredObject): Buffer {
  const size = keyValueSize(0, object, false);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(tag);
  writer.varint(size);
  writeKeyValue(writer, none, object);
  return writer.bytes;
}
