import { MessageCursor } from "../protobuf/message-cursor.ts";
import { bigFieldSize, numberFieldSize, varintSize, WireWriter } from "../protobuf/wire-writer.ts";
import { prefixSize } from "./encode.ts";
import type { CompressedPart, Encoding } from "./encoding.ts";
import type { PartsWriter } from "./parts-writer.ts";

/*
 * Encodes watchfanout.v1.SubscribeResponse by hand, each message with gRPC's prefix. Those of watches are written behind one
 * another, as there may be thousands at once; the answers to requests are returned. A client takes a message apart with
 * `receivedOf`.
 */

const idTag = 0x08;
const watchTag = 0x12;
const endedTag = 0x1a;
const refusedTag = 0x22;
const progressTag = 0x2a;

/** Of the messages in it. */
const revisionTag = 0x08;
const historyTag = 0x22;
const tagTag = 0x10;

const noBytes = new Uint8Array(0);

/**
 * Writes a response of a watch: `frame`, which many streams share, behind a few bytes of this stream. A large one is not
 * copied. `extra`: further fields of the WatchResponse, from `historyField`. Returns its size, in bytes.
 */
export function writeWatchResponse(
  parts: PartsWriter,
  id: number,
  frame: Uint8Array,
  extra: Uint8Array = noBytes,
): number {
  const { byteLength } = frame;
  const head = writeHead(parts, id, byteLength - prefixSize + extra.byteLength);
  parts.add(frame, prefixSize, byteLength);
  if (extra.byteLength > 0) parts.add(extra, 0, extra.byteLength);
  return head + byteLength - prefixSize + extra.byteLength;
}

/** Writes a bookmark of a watch. Returns its size, in bytes. */
export function writeBookmark(parts: PartsWriter, id: number, revision: number): number {
  const size = numberFieldSize(revision);
  const head = writeHead(parts, id, size);
  parts.room(size).numberField(revisionTag, revision);
  return head + size;
}

/** As `writeWatchResponse`, of a frame whose message is compressed. Returns its size, in bytes. */
export function writeCompressedResponse(
  parts: PartsWriter,
  id: number,
  part: CompressedPart,
  encoding: Encoding,
): number {
  const fields = fieldsSize(id, part.plainBytes);
  const head = new WireWriter(Buffer.allocUnsafe(prefixSize + fields));
  writeFields(head, id, watchTag, fields, part.plainBytes);
  let bytes = 0;
  for (const piece of encoding.message([head.bytes.subarray(prefixSize), part])) {
    parts.add(piece, 0, piece.byteLength);
    bytes += piece.byteLength;
  }
  return bytes;
}

/** The field of a WatchResponse with the id of its history; empty for an empty id. */
export function historyField(historyId: string): Uint8Array {
  if (historyId === "") return noBytes;
  const size = Buffer.byteLength(historyId);
  const writer = new WireWriter(Buffer.allocUnsafe(1 + varintSize(size) + size));
  writer.textField(historyTag, historyId, size);
  return writer.bytes;
}

/** The end of a watch. `status` is an encoded google.rpc.Status; empty: OK. */
export function endedResponse(id: number, status: Uint8Array = noBytes): Uint8Array {
  const writer = answerWriter(id, endedTag, status.byteLength);
  writer.raw(status);
  return writer.bytes;
}

/** A request was refused. `status` is an encoded google.rpc.Status. */
export function refusedResponse(id: number, status: Uint8Array): Uint8Array {
  const writer = answerWriter(id, refusedTag, status.byteLength);
  writer.raw(status);
  return writer.bytes;
}

/** The progress of all watches together, with the tag of the request. */
export function progressResponse(revision: number, tag: bigint): Uint8Array {
  const writer = answerWriter(0, progressTag, numberFieldSize(revision) + bigFieldSize(tag));
  writer.numberField(revisionTag, revision);
  writer.bigField(tagTag, tag);
  return writer.bytes;
}

/** Writes what precedes a WatchResponse of `size` bytes. Returns its size, in bytes. */
function writeHead(parts: PartsWriter, id: number, size: number): number {
  const fields = fieldsSize(id, size);
  writeFields(parts.room(prefixSize + fields), id, watchTag, fields, size);
  return prefixSize + fields;
}

/** A writer of a message whose field `tag` has `size` bytes, which are still to be written. */
function answerWriter(id: number, tag: number, size: number): WireWriter {
  const fields = fieldsSize(id, size);
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + fields + size));
  writeFields(writer, id, tag, fields, size);
  return writer;
}

function fieldsSize(id: number, size: number): number {
  return numberFieldSize(id) + 1 + varintSize(size);
}

function writeFields(
  writer: WireWriter,
  id: number,
  tag: number,
  fields: number,
  size: number,
): void {
  writer.prefix(fields + size);
  writer.numberField(idTag, id);
  writer.byte(tag);
  writer.varint(size);
}

/** A SubscribeResponse whose content is not decoded: its reader may be slow, and counts it as the server does, in bytes. */
export interface Received {
  /** The watch that it belongs to. 0: the whole stream, or a request without a valid id. */
  readonly id: number;
  /** The tag of the field that is set; 0: none that is known. */
  readonly kind: number;
  /** A WatchResponse, a google.rpc.Status or a Progress, encoded. */
  readonly content: Uint8Array;
  /** Of a Progress: its revision, and the tag of the request that it answers. */
  readonly progress: { readonly revision: number; readonly tag: number } | undefined;
}

/** What is sent in a SubscribeResponse. */
export const received = {
  watch: watchTag,
  ended: endedTag,
  refused: refusedTag,
  progress: progressTag,
} as const;

/** Takes one message apart. Throws a WireFault if it can't be read. */
export function receivedOf(message: Uint8Array): Received {
  const cursor = new MessageCursor(message);
  let id = 0;
  let kind = 0;
  let content: Uint8Array = message.subarray(0, 0);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === idTag) id = cursor.natural();
    else if (tag === watchTag || tag === endedTag || tag === refusedTag || tag === progressTag) {
      kind = tag;
      content = cursor.view();
    } else cursor.skip(tag);
  }
  const progress = kind === progressTag ? progressOf(content) : undefined;
  return { id, kind, content, progress };
}

function progressOf(content: Uint8Array): NonNullable<Received["progress"]> {
  const cursor = new MessageCursor(content);
  let revision = 0;
  let tag = 0;
  for (let field = cursor.next(); field !== 0; field = cursor.next()) {
    if (field === revisionTag) revision = cursor.natural();
    else if (field === tagTag) tag = cursor.natural();
    else cursor.skip(field);
  }
  return { revision, tag };
}
