import type { EventType, WatchEvent } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import { encodedSize, objectTag, previousTag, writeObject } from "../model/object-encoding.ts";
import {
  bytesFieldSize,
  numberFieldSize,
  varintSize,
  WireWriter,
} from "../protobuf/wire-writer.ts";
import { leastInPlace, PartsWriter } from "./parts-writer.ts";

/*
 * The frequent messages, encoded by hand. A tag is the field's number in the proto, shifted by three, and its wire
 * type.
 */

const eventTypes: Readonly<Record<EventType, number>> = { ADDED: 1, MODIFIED: 2, DELETED: 3 };

/** Size of an event in a watchfanout.v1.WatchResponse in bytes, with tag and length. */
export function eventSize({ object, previous }: WatchEvent): number {
  return bytesFieldSize(
    2 + encodedSize(object) + (previous === undefined ? 0 : encodedSize(previous)),
  );
}

/** The fields of a watchfanout.v1.WatchResponse without its events. */
interface ResponseHead {
  readonly revision: number | undefined;
  readonly initialEventsEnd: boolean;
}

/** Maximum size of a watchfanout.v1.WatchResponse without its events, in bytes. */
export const maxHeadSize = 16;

/** Size of gRPC's prefix of a message, in bytes: one byte says whether it is compressed, four have its length. */
export const prefixSize = 5;

/**
 * Encodes a watchfanout.v1.WatchResponse as a frame, that is with gRPC's prefix, so that it can be sent as it is.
 * `eventsSize` is the sum of the events' `eventSize`. The revision is the first field, where `resumePointOf` reads it.
 */
export function encodeWatchResponse(
  head: ResponseHead,
  events: readonly WatchEvent[],
  eventsSize: number,
): Buffer {
  const { revision, initialEventsEnd } = head;
  const revisionSize = revision === undefined ? 0 : 1 + varintSize(revision);
  const size = revisionSize + eventsSize + (initialEventsEnd ? 2 : 0);
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + size));
  writer.prefix(size);
  if (revision !== undefined) {
    writer.byte(0x08);
    writer.varint(revision);
  }
  for (const event of events) writeEvent(writer, event);
  if (initialEventsEnd) {
    writer.byte(0x18);
    writer.byte(1);
  }
  return writer.bytes;
}

function writeEvent(writer: WireWriter, { type, object, previous }: WatchEvent): void {
  writer.byte(0x12);
  writer.varint(2 + encodedSize(object) + (previous === undefined ? 0 : encodedSize(previous)));
  writer.byte(0x08);
  writer.byte(eventTypes[type]);
  writeObject(writer, objectTag, object);
  if (previous !== undefined) writeObject(writer, previousTag, previous);
}

/**
 * Adds the id of the history that a frame's revisions belong to. Fields may have any order, so the field is appended to
 * a copy, and the shared frame stays as it is.
 */
export function withHistoryId(frame: Uint8Array, historyId: string): Uint8Array {
  if (historyId === "") return frame;
  const message = frame.subarray(prefixSize);
  const field = writeTexts([0x22, historyId]);
  const size = message.byteLength + field.byteLength;
  const writer = new WireWriter(Buffer.allocUnsafe(prefixSize + size));
  writer.prefix(size);
  writer.raw(message);
  writer.raw(field);
  return writer.bytes;
}

/** Returns the revision of a frame of `encodeWatchResponse`; undefined if it has no revision. */
export function resumePointOf(frame: Uint8Array): number | undefined {
  if (frame[prefixSize] !== 0x08) return undefined;
  let revision = 0;
  let scale = 1;
  for (let i = prefixSize + 1; ; i++) {
    const byte = frame[i] ?? 0;
    revision += (byte & 0x7f) * scale;
    scale *= 0x80;
    if (byte < 0x80) return revision;
  }
}

/** The fields of a page without its items. */
export interface PageHead {
  readonly revision: number;
  readonly nextPageToken: string;
  /** Number of objects after this page; undefined if unknown. */
  readonly remaining: number | undefined;
  readonly historyId: string;
  /** How old the page may be, in milliseconds; undefined: it is not stale. */
  readonly staleForMs?: number | undefined;
}

/** Encodes a watchfanout.v1.ListResponse, in consecutive parts. `items` are encoded by `encodeItems`. */
export function encodeListResponse(
  page: PageHead,
  items: readonly Uint8Array[],
): readonly Uint8Array[] {
  const { revision, nextPageToken, remaining, historyId, staleForMs } = page;
  const head = new WireWriter(Buffer.allocUnsafe(numberFieldSize(revision)));
  head.numberField(0x08, revision);
  const texts = writeTexts([0x1a, nextPageToken], [0x2a, historyId]);
  const rest = remaining === undefined ? 0 : 1 + varintSize(remaining);
  const tail = new WireWriter(Buffer.allocUnsafe(rest + texts.byteLength));
  if (remaining !== undefined) {
    tail.byte(0x20);
    tail.varint(remaining);
  }
  tail.raw(texts);
  if (staleForMs === undefined) return [head.bytes, ...items, tail.bytes];
  return [head.bytes, ...items, tail.bytes, durationField(0x32, staleForMs)];
}

/** Encoded items of the arrays that are alive. */
const encodedItems = new WeakMap<readonly StoredObject[], readonly Uint8Array[]>();

/**
 * Encodes objects as the items of a page, in consecutive parts, and caches them by this array, which responses may
 * share. Most of a page is already encoded in slabs and is sent from there.
 */
export function encodeItems(items: readonly StoredObject[]): readonly Uint8Array[] {
  const known = encodedItems.get(items);
  if (known !== undefined) return known;
  const writer = new PartsWriter(copiedSize(items));
  writeItems(writer, items);
  const parts = writer.finish();
  encodedItems.set(items, parts);
  return parts;
}

/** Objects that are adjacent in a slab, as listed ones are, stay there together. */
function writeItems(parts: PartsWriter, items: readonly StoredObject[]): void {
  for (let start = 0, end = 0; start < items.length; start = end) {
    end = runEnd(items, start);
    const first = items[start] as StoredObject;
    if (first.encodedStart < 0) writeObject(parts.room(encodedSize(first)), objectTag, first);
    else parts.add(first.content, first.encodedStart, (items[end - 1] as StoredObject).valueEnd);
  }
}

/** Size in bytes of what `writeItems` copies. Its buffers are held as long as the encoding, so they are not larger. */
function copiedSize(items: readonly StoredObject[]): number {
  let size = 0;
  for (let start = 0, end = 0; start < items.length; start = end) {
    end = runEnd(items, start);
    const first = items[start] as StoredObject;
    if (first.encodedStart < 0) size += encodedSize(first);
    else {
      const bytes = (items[end - 1] as StoredObject).valueEnd - first.encodedStart;
      if (bytes < leastInPlace) size += bytes;
    }
  }
  return size;
}

/** The index behind the objects from `start` on that are adjacent in a slab; behind the first if it is in none. */
function runEnd(items: readonly StoredObject[], start: number): number {
  const { content, encodedStart, valueEnd } = items[start] as StoredObject;
  let next = start + 1;
  if (encodedStart < 0) return next;
  for (let at = valueEnd; next < items.length; next++) {
    const item = items[next] as StoredObject;
    if (item.content !== content || item.encodedStart !== at) break;
    at = item.valueEnd;
  }
  return next;
}

/**
 * Encodes a GetResponse, PutResponse or DeleteResponse, which have the same fields: revision, object, history. Returns
 * consecutive parts; a large object is sent from its slab.
 */
export function encodeObjectResponse(
  revision: number,
  object: StoredObject,
  historyId: string,
): readonly Uint8Array[] {
  const texts = writeTexts([0x1a, historyId]);
  const { content, encodedStart, valueEnd } = object;
  const objectBytes = encodedSize(object);
  if (encodedStart >= 0 && objectBytes >= leastInPlace) {
    const head = new WireWriter(Buffer.allocUnsafe(numberFieldSize(revision)));
    head.numberField(0x08, revision);
    return [head.bytes, content.subarray(encodedStart, valueEnd), texts];
  }
  const size = numberFieldSize(revision) + objectBytes + texts.byteLength;
  const writer = new WireWriter(Buffer.allocUnsafe(size));
  writer.numberField(0x08, revision);
  writeObject(writer, objectTag, object);
  writer.raw(texts);
  return [writer.bytes];
}

/** Why a history has no older changes: the names in the proto without their prefix. */
export type HistoryEnd = "CREATION" | "COMPACTION" | "LIMIT";

const historyEnds: Readonly<Record<HistoryEnd, number>> = { CREATION: 1, COMPACTION: 2, LIMIT: 3 };

/** A page of a history. */
export interface HistoryResponse {
  readonly revision: number;
  /** The newest first. */
  readonly events: readonly WatchEvent[];
  /** The sum of the events' `eventSize`. */
  readonly eventsSize: number;
  readonly nextPageToken: string;
  readonly historyId: string;
  /** Undefined: older changes follow. */
  readonly end: HistoryEnd | undefined;
  readonly oldestRevision: number;
}

/** Encodes a watchfanout.v1.HistoryResponse. Its events have the field number of those of a WatchResponse. */
export function encodeHistoryResponse(page: HistoryResponse): Uint8Array {
  const { revision, events, eventsSize, nextPageToken, historyId, end, oldestRevision } = page;
  const texts = writeTexts([0x1a, nextPageToken], [0x22, historyId]);
  const endNumber = end === undefined ? 0 : historyEnds[end];
  const numbers =
    numberFieldSize(revision) + numberFieldSize(endNumber) + numberFieldSize(oldestRevision);
  const writer = new WireWriter(Buffer.allocUnsafe(numbers + eventsSize + texts.byteLength));
  writer.numberField(0x08, revision);
  for (const event of events) writeEvent(writer, event);
  writer.raw(texts);
  writer.numberField(0x28, endNumber);
  writer.numberField(0x30, oldestRevision);
  return writer.bytes;
}

/** Adds to the response of a Get how old it may be, in milliseconds. */
export function withStaleness(
  response: readonly Uint8Array[],
  staleForMs: number,
): readonly Uint8Array[] {
  return [...response, durationField(0x22, staleForMs)];
}

/** A google.protobuf.Duration of whole milliseconds, which is not negative. */
export function durationOf(ms: number): { readonly seconds: number; readonly nanos: number } {
  return { seconds: Math.floor(ms / 1_000), nanos: Math.floor(ms % 1_000) * 1_000_000 };
}

/** Encodes a field of type google.protobuf.Duration. */
function durationField(tag: number, ms: number): Buffer {
  const { seconds, nanos } = durationOf(ms);
  const size = numberFieldSize(seconds) + numberFieldSize(nanos);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(tag);
  writer.varint(size);
  writer.numberField(0x08, seconds);
  writer.numberField(0x10, nanos);
  return writer.bytes;
}

/** Encodes text fields; empty ones are left out. */
function writeTexts(...fields: readonly (readonly [tag: number, text: string])[]): Buffer {
  const present = fields.filter(([, text]) => text !== "");
  const sizes = present.map(([, text]) => Buffer.byteLength(text));
  const total = sizes.reduce((sum, size) => sum + bytesFieldSize(size), 0);
  const writer = new WireWriter(Buffer.allocUnsafe(total));
  present.forEach(([tag, text], i) => {
    writer.textField(tag, text, sizes[i] ?? 0);
  });
  return writer.bytes;
}

/** A message with gRPC's prefix, to be written at once, in consecutive parts. */
export type FrameParts = readonly Uint8Array[];

/** Returns the frame of an encoded message. Does not copy its parts. */
export function frameOf(...message: readonly Uint8Array[]): FrameParts {
  const prefix = Buffer.alloc(prefixSize);
  prefix.writeUInt32BE(sizeOf(message), 1);
  return [prefix, ...message];
}

/** Size in bytes. */
export function sizeOf(parts: FrameParts): number {
  let size = 0;
  for (const part of parts) size += part.byteLength;
  return size;
}
