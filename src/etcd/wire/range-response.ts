import type { StoredObject } from "../../model/object.ts";
import { MessageCursor } from "../../protobuf/message-cursor.ts";
import { bytesFieldSize, numberFieldSize } from "../../protobuf/wire-writer.ts";
import { leastInPlace, type PartsWriter } from "../../wire/parts-writer.ts";
import {
  type DecodedKeyValues,
  KeyValueColumns,
  keyValueHeadSize,
  keyValueSize,
  leaseSize,
  writeKeyValueHead,
  writeLease,
} from "./key-value.ts";
import { decoding } from "./messages.ts";
import { headerTag, readRevision } from "./response-header.ts";

/*
 * etcd's RangeResponse. Its fields are written in their order: the header, the objects, and what is behind them.
 */

const kvsTag = 0x12;
const moreTag = 0x18;
const countTag = 0x20;

export interface DecodedRange {
  /** The store's own revision. */
  readonly revision: number;
  readonly kvs: DecodedKeyValues;
  readonly more: boolean;
  /** Number of keys in the range, regardless of the limit. */
  readonly count: number;
}

/** @throws UnreadableMessage if the bytes are not a RangeResponse, or a number in it can't be held exactly */
export function decodeRange(message: Buffer): DecodedRange {
  return decoding("RangeResponse", message, readRange);
}

function readRange(cursor: MessageCursor): DecodedRange {
  const kvs = new KeyValueColumns(cursor.bytes, countOf(kvsTag, cursor.bytes));
  let revision = 0;
  let more = false;
  let count = 0;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === kvsTag) kvs.add(cursor);
    else if (tag === headerTag) revision = readRevision(cursor);
    else if (tag === moreTag) more = cursor.number() !== 0;
    else if (tag === countTag) count = cursor.natural();
    else cursor.skip(tag);
  }
  return { revision, kvs, more, count };
}

/** How many times the message has the field with this tag. */
function countOf(wanted: number, message: Buffer): number {
  const cursor = new MessageCursor(message);
  let count = 0;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === wanted) count++;
    cursor.skip(tag);
  }
  return count;
}

/** The fields of a response, beside the header. */
export interface RangeFields {
  /** Size of the fields of the objects, in bytes. */
  readonly fieldBytes: number;
  readonly more: boolean;
  readonly count: number;
}

/** What a response is made of, beside its objects. */
export interface RangeResponseOptions {
  /** The prefix of the objects' resource. */
  readonly prefix: Buffer;
  /** The encoded field with the header. */
  readonly header: Buffer;
  readonly keysOnly: boolean;
}

/** Size of all fields, in bytes. */
export function fieldsSize(fields: RangeFields, { header }: RangeResponseOptions): number {
  return header.length + fields.fieldBytes + endSize(fields);
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
export function endSize({ more, count }: RangeFields): number {
  return (more ? 2 : 0) + numberFieldSize(count);
}

/** Writes the fields behind the objects. */
export function writeEnd(parts: PartsWriter, fields: RangeFields): void {
  const { more, count } = fields;
  const writer = parts.room(endSize(fields));
  writer.numberField(moreTag, more ? 1 : 0);
  writer.numberField(countTag, count);
}
