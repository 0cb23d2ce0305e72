import { bigFieldSize, numberFieldSize, varintSize, WireWriter } from "../protobuf/wire-writer.ts";
import { type FrameParts, prefixSize } from "./encode.ts";
import type { CompressedPart, Encoding } from "./encoding.ts";

/*
 * Encodes watchfanout.v1.SubscribeResponse by hand. Each returns one message with gRPC's prefix, in consecutive parts.
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
 * A response of a watch: `frame`, which many streams share, behind a few bytes of this stream. It is not copied. `extra`:
 * further fields of the WatchResponse, from `historyField`.
 */
export function watchResponse(
  id: number,
  frame: Uint8Array,
  extra: Uint8Array = noBytes,
): FrameParts {
  const head = headOf(id, watchTag, frame.byteLength - prefixSize + extra.byteLength);
  const message = frame.subarray(prefixSize);
  return extra.byteLength === 0 ? [head, message] : [head, message, extra];
}

/** The same, of a frame whose message is compressed. */
export function compressedWatchResponse(
  id: number,
  part: CompressedPart,
  encoding: Encoding,
): FrameParts {
  return encoding.message([headOf(id, watchTag, part.plainBytes).subarray(prefixSize), part]);
}

/** The field of a WatchResponse with the id of its history; empty for an empty id. */
export function historyField(historyId: string): Uint8Array {
  if (historyId === "") return noBytes;
  const size = Buffer.byteLength(historyId);
  const writer = new WireWriter(Buffer.allocUnsafe(1 + varintSize(size) + size));
  writer.textField(historyTag, historyId, size);
  return writer.bytes;
}

/** A bookmark of a watch. */
export function bookmarkResponse(id: number, revision: number): FrameParts {
  return [headOf(id, watchTag, numberFieldSize(revision)), revisionField(revision)];
}

/** The end of a watch. `status` is an encoded google.rpc.Status; empty: OK. */
export function endedResponse(id: number, status: Uint8Array = noBytes): FrameParts {
  return [headOf(id, endedTag, status.byteLength), status];
}

/** A request was refused. `status` is an encoded google.rpc.Status. */
export function refusedResponse(id: number, status: Uint8Array): FrameParts {
  return [headOf(id, refusedTag, status.byteLength), status];
}

/** The progress of all watches together, with the tag of the request. */
export function progressResponse(revision: number, tag: bigint): FrameParts {
  const size = numberFieldSize(revision) + bigFieldSize(tag);
  const writer = new WireWriter(Buffer.allocUnsafe(size));
  writer.numberField(revisionTag, revision);
  writer.bigField(tagTag, tag);
  return [headOf(0, progressTag, size), writer.bytes];
}

function revisionField(revision: number): Uint8Array {
  const writer = new WireWriter(Buffer.allocUnsafe(numberFieldSize(revision)));
  writer.numberField(revisionTag, revision);
  return writer.bytes;
}

/** What precedes a message of `size` bytes that is the field `tag`. */
function headOf(id: number, tag: number, size: number): Buffer {
  const fields = numberFieldSize(id) + 1 + varintSize(size);
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + fields));
  writer.prefix(fields + size);
  writer.numberField(idTag, id);
  writer.byte(tag);
  writer.varint(size);
  return writer.bytes;
}

/** A part of this size or more is passed on by itself, in bytes: to copy it would cost more than one more part of a write. */
const leastAlone = 2 * 1024;

/** The same bytes in fewer parts: small ones that follow one another are copied together. */
export function withJoinedParts(parts: FrameParts): FrameParts {
  const joined: Uint8Array[] = [];
  for (let start = 0, end = 0; start < parts.length; start = end) {
    let bytes = 0;
    for (; end < parts.length; end++) {
      const { byteLength } = parts[end] as Uint8Array;
      if (byteLength >= leastAlone) break;
      bytes += byteLength;
    }
    if (end > start) joined.push(copied(parts, start, end, bytes));
    else joined.push(parts[end++] as Uint8Array);
  }
  return joined;
}

function copied(parts: FrameParts, start: number, end: number, bytes: number): Uint8Array {
  if (end === start + 1) return parts[start] as Uint8Array;
  const copy = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (let i = start; i < end; i++) {
    const part = parts[i] as Uint8Array;
    copy.set(part, at);
    at += part.byteLength;
  }
  return copy;
}
