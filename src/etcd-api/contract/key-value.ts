import { keyBytes, keySize } from "../../model/key-bytes.ts";
import type { StoredObject } from "../../model/object.ts";
import {
  bigVarintSize,
  bytesFieldSize,
  numberFieldSize,
  type WireWriter,
} from "../../protobuf/wire-writer.ts";

/*
 * An object in etcd's wire format: the message KeyValue of its kv.proto. Its fields are written in their order, with the
 * value before the lease, so that they are the bytes that etcd writes.
 */

const keyTag = 0x0a;
const createRevisionTag = 0x10;
const modRevisionTag = 0x18;
const versionTag = 0x20;
const valueTag = 0x2a;
const leaseTag = 0x30;

/** Size of a KeyValue in bytes, of an object whose resource has a prefix of this size. Without its value if `keyOnly`. */
export function keyValueSize(prefixBytes: number, object: StoredObject, keyOnly: boolean): number {
  return (
    keyValueHeadSize(prefixBytes, object, keyOnly) + valueSize(object, keyOnly) + leaseSize(object)
  );
}

/** Size of what `writeKeyValueHead` writes, in bytes. */
export function keyValueHeadSize(
  prefixBytes: number,
  object: StoredObject,
  keyOnly: boolean,
): number {
  const { key, createRevision, modRevision, version } = object;
  const bytes = valueSize(object, keyOnly);
  return (
    keyFieldSize(prefixBytes, key) +
    numberFieldSize(createRevision) +
    numberFieldSize(modRevision) +
    numberFieldSize(version) +
    (bytes === 0 ? 0 : bytesFieldSize(bytes) - bytes)
  );
}

/** Size of what `writeLease` writes, in bytes. */
export function leaseSize({ lease }: StoredObject): number {
  return lease === 0n ? 0 : 1 + bigVarintSize(lease);
}

/** Writes a KeyValue with its value. `prefix` is that of the object's resource. */
export function writeKeyValue(writer: WireWriter, prefix: Buffer, object: StoredObject): void {
  writeKeyValueHead(writer, prefix, object, false);
  const { content, valueStart, valueEnd } = object;
  if (valueEnd > valueStart) writer.copy(content, valueStart, valueEnd);
  writeLease(writer, object);
}

/** Size of the KeyValue of a deletion, in bytes. */
export function deletionSize(prefixBytes: number, { key, modRevision }: StoredObject): number {
  return keyFieldSize(prefixBytes, key) + numberFieldSize(modRevision);
}

/** Writes the KeyValue of a deletion, of which etcd sends nothing but the key and the revision. */
export function writeDeletion(writer: WireWriter, prefix: Buffer, object: StoredObject): void {
  writeKey(writer, prefix, object.key);
  writer.numberField(modRevisionTag, object.modRevision);
}

/** Writes everything that precedes the value's bytes. `prefix` is that of the object's resource. */
export function writeKeyValueHead(
  writer: WireWriter,
  prefix: Buffer,
  object: StoredObject,
  keyOnly: boolean,
): void {
  const { key, createRevision, modRevision, version } = object;
  writeKey(writer, prefix, key);
  writer.numberField(createRevisionTag, createRevision);
  writer.numberField(modRevisionTag, modRevision);
  writer.numberField(versionTag, version);
  const size = valueSize(object, keyOnly);
  if (size === 0) return;
  writer.byte(valueTag);
  writer.varint(size);
}

/** Writes what follows the value. */
export function writeLease(writer: WireWriter, { lease }: StoredObject): void {
  if (lease === 0n) return;
  writer.byte(leaseTag);
  writer.bigVarint(lease);
}

function keyFieldSize(prefixBytes: number, key: string): number {
  return bytesFieldSize(prefixBytes + keySize(key));
}

function writeKey(writer: WireWriter, prefix: Buffer, key: string): void {
  const bytes = keySize(key);
  writer.byte(keyTag);
  writer.varint(prefix.length + bytes);
  writer.raw(prefix);
  if (key.isWellFormed()) writer.text(key, bytes);
  else writer.raw(keyBytes(key));
}

function valueSize({ valueBytes }: StoredObject, keyOnly: boolean): number {
  return keyOnly ? 0 : valueBytes;
}
