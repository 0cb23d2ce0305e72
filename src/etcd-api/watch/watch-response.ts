import { MessageCursor } from "../../protobuf/message-cursor.ts";
import {
  bigVarintSize,
  bytesFieldSize,
  numberFieldSize,
  WireWriter,
} from "../../protobuf/wire-writer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";

/*
 * etcd's WatchResponse. Field numbers are those of its rpc.proto.
 */

/** The id of responses that are of no watch: of a watch that was refused, or of all watches of the stream. */
export const noWatchId = -1n;

/** Size of what is copied to make a frame of its own, in bytes; larger frames are sent in parts. */
const copiedBytes = 8 * 1024;

const none = Buffer.alloc(0);

/** The tags of a response's header and of its events. */
export const headerTag = 0x0a;
export const eventsTag = 0x5a;

/** A response without events. */
export interface Answer {
  readonly watchId: bigint;
  readonly created?: boolean;
  readonly canceled?: boolean;
  /** Of a watch that needs a revision that was compacted. */
  readonly compactRevision?: number;
  readonly cancelReason?: string;
}

/** Encodes a response without events as a frame, that is with gRPC's prefix. */
export function encodeAnswer(header: Buffer, answer: Answer): Buffer {
  const { compactRevision = 0, cancelReason = "" } = answer;
  const id = watchIdField(answer.watchId);
  const reasonBytes = Buffer.byteLength(cancelReason);
  const size =
    header.length +
    id.length +
    (answer.created === true ? 2 : 0) +
    (answer.canceled === true ? 2 : 0) +
    numberFieldSize(compactRevision) +
    (reasonBytes === 0 ? 0 : bytesFieldSize(reasonBytes));
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + size));
  writer.prefix(size);
  writer.raw(header);
  writer.raw(id);
  writer.numberField(0x18, answer.created === true ? 1 : 0);
  writer.numberField(0x20, answer.canceled === true ? 1 : 0);
  writer.numberField(0x28, compactRevision);
  if (reasonBytes > 0) writer.textField(0x32, cancelReason, reasonBytes);
  return writer.bytes;
}

/** Encodes the field of a response with its watch id; empty for the id 0. */
export function watchIdField(watchId: bigint): Buffer {
  if (watchId === 0n) return none;
  const unsigned = BigInt.asUintN(64, watchId);
  const writer = new WireWriter(Buffer.allocUnsafe(1 + bigVarintSize(unsigned)));
  writer.byte(0x10);
  writer.bigVarint(unsigned);
  return writer.bytes;
}

/** Adds fields behind those of a message. A field that is there already has the later value then. */
export function withFields(message: Uint8Array, fields: Uint8Array): FrameParts {
  const size = message.byteLength + fields.byteLength;
  const copied = size <= copiedBytes ? size : 0;
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + copied));
  writer.prefix(size);
  if (copied === 0) return [writer.bytes, message, fields];
  writer.raw(message);
  writer.raw(fields);
  return [writer.bytes];
}

/** Adds fields behind those of each message of a frame. */
export function withFieldsInEach(frame: Uint8Array, fields: Uint8Array): FrameParts {
  const { buffer, byteOffset, byteLength } = frame;
  const view = new DataView(buffer, byteOffset, byteLength);
  const first = prefixSize + view.getUint32(1);
  if (first === byteLength) return withFields(frame.subarray(prefixSize), fields);
  const parts: Uint8Array[] = [];
  for (let at = 0; at < byteLength; ) {
    const end = at + prefixSize + view.getUint32(at + 1);
    parts.push(...withFields(frame.subarray(at + prefixSize, end), fields));
    at = end;
  }
  return [Buffer.concat(parts)];
}

/** What is read of a response of etcd. */
export interface ReceivedResponse {
  readonly watchId: bigint;
  readonly created: boolean;
  readonly canceled: boolean;
  /** Whether further fragments of the same response follow. */
  readonly fragment: boolean;
  /** Of the header. */
  readonly revision: number;
  /** The revision of the last event; undefined: it has no events. */
  readonly lastEvent: number | undefined;
}

/** Reads a response of etcd, without gRPC's prefix. Throws a WireFault. */
export function readWatchResponse(message: Buffer): ReceivedResponse {
  const cursor = new MessageCursor(message);
  let watchId = 0n;
  let created = false;
  let canceled = false;
  let fragment = false;
  let revision = 0;
  let last: Buffer | undefined;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === headerTag) revision = numberIn(cursor.view(), 0x18);
    else if (tag === 0x10) watchId = BigInt.asIntN(64, cursor.bigint());
    else if (tag === 0x18) created = cursor.bigint() !== 0n;
    else if (tag === 0x20) canceled = cursor.bigint() !== 0n;
    else if (tag === 0x38) fragment = cursor.bigint() !== 0n;
    else if (tag === eventsTag) last = cursor.view();
    else cursor.skip(tag);
  }
  const lastEvent = last === undefined ? undefined : modRevisionOf(last);
  return { watchId, created, canceled, fragment, revision, lastEvent };
}

/** The revision of an encoded event. */
export function modRevisionOf(event: Buffer): number {
  const cursor = new MessageCursor(event);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x12) return numberIn(cursor.view(), 0x18);
    cursor.skip(tag);
  }
  return 0;
}

/** The value of a number field of a message; 0 if it is not there. */
function numberIn(message: Buffer, field: number): number {
  const cursor = new MessageCursor(message);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === field) return cursor.natural();
    cursor.skip(tag);
  }
  return 0;
}
