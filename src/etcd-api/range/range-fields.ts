import type { StoredObject } from "../../model/object.ts";
import { bytesFieldSize, numberFieldSize } from "../../protobuf/wire-writer.ts";
import { leastInPlace, type PartsWriter } from "../../wire/parts-writer.ts";
import {
  keyValueHeadSize,
  keyValueSize,
  leaseSize,
  writeKeyValueHead,
  writeLease,
} from "../contract/key-value.ts";
import type { SelectedObjects } from "./range-selection.ts";

/*
 * The fields of etcd's RangeResponse. Their numbers are those of its rpc.proto: header 1, kvs 2, more 3, count 4.
 */

const kvsTag = 0x12;
const moreTag = 0x18;
const countTag = 0x20;

/** What a response is made of, beside its objects. */
export interface RangeResponseOptions {
  /** The prefix of the objects' resource. */
  readonly prefix: Buffer;
  /** The encoded field with the header. */
  readonly header: Buffer;
  readonly keysOnly: boolean;
}

/** Size of all fields, in bytes. */
export function fieldsSize(selected: SelectedObjects, { header }: RangeResponseOptions): number {
  return header.length + selected.fieldBytes + endSize(selected);
}

/** Size of an object's field, in bytes. */
export function objectSize(
  object: StoredObject,
  { prefix, keysOnly }: RangeResponseOptions,
): number {
  return bytesFieldSize(keyValueSize(prefix.length, object, keysOnly));
}

/** Writes an object's field, and returns its size. Large values stay where they are. */
export function writeObject(
  parts: PartsWriter,
  object: StoredObject,
  { prefix, keysOnly }: RangeResponseOptions,
): number {
  const { content, valueStart, valueEnd } = object;
  const size = keyValueSize(prefix.length, object, keysOnly);
  const field = bytesFieldSize(size);
  const valueBytes = keysOnly ? 0 : valueEnd - valueStart;
  const isInPlace = valueBytes >= leastInPlace;
  const beforeValue = field - size + keyValueHeadSize(prefix.length, object, keysOnly);
  const writer = parts.room(isInPlace ? beforeValue : field);
  writer.byte(kvsTag);
  writer.varint(size);
  writeKeyValueHead(writer, prefix, object, keysOnly);
  if (isInPlace) {
    parts.add(content, valueStart, valueEnd);
    writeLease(parts.room(leaseSize(object)), object);
  } else {
    if (valueBytes > 0) writer.copy(content, valueStart, valueEnd);
    writeLease(writer, object);
  }
  return field;
}

/** Size of the fields behind the objects, in bytes. */
export function endSize({ more, count }: SelectedObjects): number {
  return (more ? 2 : 0) + numberFieldSize(count);
}

/** Writes the fields behind the objects. */
export function writeEnd(parts: PartsWriter, selected: SelectedObjects): void {
  const { more, count } = selected;
  const writer = parts.room(endSize(selected));
  writer.numberField(moreTag, more ? 1 : 0);
  writer.numberField(countTag, count);
}
