import { bigFieldSize, numberFieldSize, varintSize, WireWriter } from "../protobuf/wire-writer.ts";
import { prefixSize } from "./encode.ts";
import type { PartsWriter } from "./parts-writer.ts";

/*
 * Encodes watchfanout.v1.SubscribeResponse by hand, each message with gRPC's prefix. Those of watches are written behind one
 * another, as there may be thousands at once; the answers to requests are returned.
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
