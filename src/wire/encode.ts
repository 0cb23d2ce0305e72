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

export { encodedSize as itemSize } from "../model/object-encoding.ts";

/*
 * The messages that are sent often, written by hand. Each tag is the field's number in the proto, shifted by three, and its wire type.
 */

const eventTypes: Readonly<Record<EventType, number>> = { ADDED: 1, MODIFIED: 2, DELETED: 3 };

/** How many bytes an event takes in a watchfanout.v1.WatchResponse, tag and length included. */
export function eventSize({ object, previous }: WatchEvent): number {
  return bytesFieldSize(
    2 + encodedSize(object) + (previous === undefined ? 0 : encodedSize(previous)),
  );
}

/** What a watchfanout.v1.WatchResponse says, without its events. */
export interface ResponseHead {
  readonly revision: number | undefined;
  readonly initialEventsEnd: boolean;
}

/** The size of a watchfanout.v1.WatchResponse apart from its events, at the most. */
export const maxHeadSize = 16;

/** What gRPC puts before every message: whether it is compressed, and its length in four bytes. */
export const prefixSize = 5;

/**
 * Encodes a watchfanout.v1.WatchResponse as a frame, that is with gRPC's prefix, so that it can be sent as it
 * is; `eventsSize` is the sum of the events' `eventSize`. The revision comes first of all, so that
 * `resumePointOf` finds it.
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
 * The same frame with the history that its revisions belong to. A message's fields may come in any
 * order, so the shared frame stays as it is and the field goes behind it.
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

/** The revision of a frame that `encodeWatchResponse` has made; undefined if it has none. */
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

/** What a page says, apart from its items. */
export interface PageHead {
  readonly revision: number;
  readonly nextPageToken: string;
  /** Undefined: unknown. */
  readonly remaining: number | undefined;
  readonly historyId: string;
}

/**
 * Encodes a watchfanout.v1.ListResponse, in parts that follow one another. `items` are encoded, by
 * `encodeItems`.
 */
export function encodeListResponse(
  page: PageHead,
  items: readonly Uint8Array[],
): readonly Uint8Array[] {
  const { revision, nextPageToken, remaining, historyId } = page;
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
  return [head.bytes, ...items, tail.bytes];
}

/** Of those that are held on to anyway. */
const encodedItems = new WeakMap<readonly StoredObject[], readonly Uint8Array[]>();

/**
 * Encodes objects as the items of a page, in parts that follow one another, and remembers them with this
 * array, which answers may share. Most of a page lies encoded in slabs, and is sent from there.
 */
export function encodeItems(items: readonly StoredObject[]): readonly Uint8Array[] {
  const known = encodedItems.get(items);
  if (known !== undefined) return known;
  const writer = new PartsWriter(items.reduce((sum, item) => sum + encodedSize(item), 0));
  writeItems(writer, items);
  const parts = writer.finish();
  encodedItems.set(items, parts);
  return parts;
}

/** Those that lie one after another in a slab, as listed ones do, are taken together. */
function writeItems(parts: PartsWriter, items: readonly StoredObject[]): void {
  for (let i = 0; i < items.length; ) {
    const first = items[i++] as StoredObject;
    if (first.encodedStart < 0) {
      writeObject(parts.room(encodedSize(first)), objectTag, first);
      continue;
    }
    const { content } = first;
    let end = first.valueEnd;
    for (; i < items.length; i++) {
      const next = items[i] as StoredObject;
      if (next.content !== content || next.encodedStart !== end) break;
      end = next.valueEnd;
    }
    parts.add(content, first.encodedStart, end);
  }
}

/**
 * Encodes a GetResponse, PutResponse or DeleteResponse, which are alike: the revision, the object, the
 * history. In parts that follow one another; a large object is sent from where it lies.
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

/** Text fields, of which empty ones are left out. */
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
