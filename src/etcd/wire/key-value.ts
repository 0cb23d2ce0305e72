import { keyBytes, keySize } from "../../model/key-bytes.ts";
import type { StoredObject } from "../../model/object.ts";
import type { MessageCursor } from "../../protobuf/message-cursor.ts";
import {
  bigFieldSize,
  bytesFieldSize,
  numberFieldSize,
  type WireWriter,
} from "../../protobuf/wire-writer.ts";

/*
 * The message KeyValue of etcd's kv.proto: read in place, and written of an object. Its fields are written in their order,
 * with the value before the lease, so that they are the bytes that etcd writes.
 */

const keyTag = 0x0a;
const createRevisionTag = 0x10;
const modRevisionTag = 0x18;
const versionTag = 0x20;
const valueTag = 0x2a;
const leaseTag = 0x30;

/** A key and its value, in place: it keeps the whole message alive. Short-lived: what is kept is copied from it. */
export class DecodedKeyValue {
  readonly message: Buffer;
  readonly keyStart: number;
  readonly keyEnd: number;
  readonly valueStart: number;
  readonly valueEnd: number;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly lease: bigint;

  constructor(
    message: Buffer,
    keyStart: number,
    keyEnd: number,
    valueStart: number,
    valueEnd: number,
    createRevision: number,
    modRevision: number,
    version: number,
    lease: bigint,
  ) {
    this.message = message;
    this.keyStart = keyStart;
    this.keyEnd = keyEnd;
    this.valueStart = valueStart;
    this.valueEnd = valueEnd;
    this.createRevision = createRevision;
    this.modRevision = modRevision;
    this.version = version;
    this.lease = lease;
  }

  get key(): Buffer {
    return this.message.subarray(this.keyStart, this.keyEnd);
  }

  get value(): Buffer {
    return this.message.subarray(this.valueStart, this.valueEnd);
  }
}

/** An array of keys and values, or an object that makes each when it is read. */
export interface DecodedKeyValues {
  readonly length: number;
  /** Counts from the end if negative. */
  at(position: number): DecodedKeyValue | undefined;
  /** Frees the memory of a large message at once, if possible. Nothing must be read afterwards. */
  release?(): void;
}

/** Messages below this size, in bytes, are left to the garbage collector. */
const leastReleased = 1024 ** 2;

/** What grpc-js leaves in front of a message in its buffer: the flag for compression and the length, in bytes. */
const framingBytes = 5;

/** Positions of one key and value in their message. */
const positionsEach = 4;
/** Revisions and version of one key and value. */
const numbersEach = 3;

/**
 * The keys and values of one message, as numbers in typed arrays: as objects, the hundred thousand of a large response
 * would all be alive at once, and V8 would move them out of the young generation, where they are expensive garbage.
 */
export class KeyValueColumns implements DecodedKeyValues {
  readonly #message: Buffer;
  readonly #positions: Uint32Array<ArrayBuffer>;
  readonly #numbers: Float64Array<ArrayBuffer>;
  /** Undefined as long as no key has a lease. */
  #leases: BigUint64Array<ArrayBuffer> | undefined;
  #length = 0;

  /** `capacity`: maximum number of keys. */
  constructor(message: Buffer, capacity: number) {
    this.#message = message;
    this.#positions = new Uint32Array(positionsEach * capacity);
    this.#numbers = new Float64Array(numbersEach * capacity);
  }

  get length(): number {
    return this.#length;
  }

  /** Reads the next one. */
  add(cursor: MessageCursor): void {
    const kv = readKeyValue(cursor);
    const { createRevision, modRevision, version, lease } = kv;
    const position = positionsEach * this.#length;
    this.#positions[position] = kv.keyStart;
    this.#positions[position + 1] = kv.keyEnd;
    this.#positions[position + 2] = kv.valueStart;
    this.#positions[position + 3] = kv.valueEnd;
    const number = numbersEach * this.#length;
    this.#numbers[number] = createRevision;
    this.#numbers[number + 1] = modRevision;
    this.#numbers[number + 2] = version;
    if (lease !== 0n) {
      this.#leases ??= new BigUint64Array(this.#numbers.length / numbersEach);
      this.#leases[this.#length] = lease;
    }
    this.#length++;
  }

  /**
   * Otherwise V8 counts large messages until its next full collection, and begins these early: with a million objects
   * half of the time of a list is spent on that. The memory of this response is then free for the slabs of the next one,
   * while the memory that a list leaves unused in the end is not returned to the system.
   */
  release(): void {
    const { buffer, byteLength } = this.#message;
    this.#length = 0;
    if (byteLength < leastReleased) return;
    this.#positions.buffer.transfer(0);
    this.#numbers.buffer.transfer(0);
    this.#leases?.buffer.transfer(0);
    const isOnlyPart = buffer.byteLength - byteLength <= framingBytes;
    if (isOnlyPart && buffer instanceof ArrayBuffer) buffer.transfer(0);
  }

  at(position: number): DecodedKeyValue | undefined {
    const i = position < 0 ? this.#length + position : position;
    if (i < 0 || i >= this.#length) return undefined;
    const positions = this.#positions;
    const numbers = this.#numbers;
    return new DecodedKeyValue(
      this.#message,
      positions[positionsEach * i] as number,
      positions[positionsEach * i + 1] as number,
      positions[positionsEach * i + 2] as number,
      positions[positionsEach * i + 3] as number,
      numbers[numbersEach * i] as number,
      numbers[numbersEach * i + 1] as number,
      numbers[numbersEach * i + 2] as number,
      this.#leases?.[i] || 0n,
    );
  }
}

/** Reads an mvccpb.KeyValue. */
export function readKeyValue(cursor: MessageCursor): DecodedKeyValue {
  let keyStart = 0;
  let keyEnd = 0;
  let valueStart = 0;
  let valueEnd = 0;
  let createRevision = 0;
  let modRevision = 0;
  let version = 0;
  let lease = 0n;
  const outer = cursor.enter();
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    switch (tag) {
      case keyTag:
        cursor.content();
        keyStart = cursor.start;
        keyEnd = cursor.end;
        break;
      case createRevisionTag:
        createRevision = cursor.natural();
        break;
      case modRevisionTag:
        modRevision = cursor.natural();
        break;
      case versionTag:
        version = cursor.natural();
        break;
      case valueTag:
        cursor.content();
        valueStart = cursor.start;
        valueEnd = cursor.end;
        break;
      case leaseTag:
        lease = cursor.bigint();
        break;
      default:
        cursor.skip(tag);
    }
  }
  cursor.leave(outer);
  return new DecodedKeyValue(
    cursor.bytes,
    keyStart,
    keyEnd,
    valueStart,
    valueEnd,
    createRevision,
    modRevision,
    version,
    lease,
  );
}

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
  return bigFieldSize(lease);
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
  writer.bigField(leaseTag, lease);
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
