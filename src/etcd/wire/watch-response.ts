import { bytesField, numberField } from "../../protobuf/fields.ts";
import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { WireWriter } from "../../protobuf/wire-writer.ts";
import { type FrameParts, frameOf, prefixSize } from "../../wire/encode.ts";
import { type DecodedKeyValue, readKeyValue } from "./key-value.ts";
import { decoding } from "./messages.ts";
import { headerTag, readRevision } from "./response-header.ts";

/*
 * etcd's WatchResponse, and the message Event of its kv.proto. Responses with events are written in watch-events.ts.
 */

const watchIdTag = 0x10;
const createdTag = 0x18;
const canceledTag = 0x20;
const compactRevisionTag = 0x28;
const cancelReasonTag = 0x32;
export const fragmentTag = 0x38;
export const eventsTag = 0x5a;

/** The tags of an event. */
export const typeTag = 0x08;
export const kvTag = 0x12;
export const previousTag = 0x1a;

/** The id of responses that are of no watch: of a watch that was refused, or of all watches of the stream. */
export const noWatchId = -1;

/** Size of what is copied to make a frame of its own, in bytes; larger frames are sent in parts. */
const copiedBytes = 8 * 1024;

const none = Buffer.alloc(0);

export interface DecodedEvent {
  readonly isDelete: boolean;
  readonly kv: DecodedKeyValue;
  readonly previous: DecodedKeyValue | undefined;
}

export interface DecodedWatch {
  /** The store's own revision. */
  readonly revision: number;
  readonly watchId: number;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly compactRevision: number;
  readonly cancelReason: string;
  readonly fragment: boolean;
  readonly events: DecodedEvents;
}

/** An array of events, or an object that decodes them one by one when they are read. */
interface DecodedEvents {
  readonly length: number;
  /** Counts from the end if negative. */
  at(position: number): DecodedEvent | undefined;
}

/** @throws UnreadableMessage if the bytes are not a WatchResponse, or a number in it can't be held exactly */
export function decodeWatch(message: Buffer): DecodedWatch {
  return decoding("WatchResponse", message, (cursor) => readWatch(cursor));
}

/**
 * As `decodeWatch`, but only finds the events, which takes a thirtieth of the time, and decodes each when it is read: a
 * response to a watch from the past may have a hundred thousand.
 *
 * @throws UnreadableMessage as `decodeWatch`, also when an event is read
 */
export function decodePastWatch(message: Buffer): DecodedWatch {
  return decoding("WatchResponse", message, (cursor) =>
    readWatch(cursor, new FoundEvents(message)),
  );
}

/** The events of a response, by their positions in it. */
class FoundEvents implements DecodedEvents {
  readonly #message: Buffer;
  readonly #cursor: MessageCursor;
  /** Start and end of each event, alternately. */
  readonly #places: number[] = [];

  constructor(message: Buffer) {
    this.#message = message;
    this.#cursor = new MessageCursor(message);
  }

  get length(): number {
    return this.#places.length / 2;
  }

  add(cursor: MessageCursor): void {
    cursor.content();
    this.#places.push(cursor.start, cursor.end);
  }

  at(position: number): DecodedEvent | undefined {
    const i = 2 * (position < 0 ? this.length + position : position);
    const start = this.#places[i];
    const end = this.#places[i + 1];
    if (start === undefined || end === undefined) return undefined;
    this.#cursor.moveTo(start, end);
    return decoding("WatchResponse", this.#message, () => readEvent(this.#cursor));
  }
}

/** With `found`, records the positions of the events and does not decode them. */
function readWatch(cursor: MessageCursor, found?: FoundEvents): DecodedWatch {
  const events: DecodedEvent[] = [];
  const response = {
    revision: 0,
    watchId: 0,
    created: false,
    canceled: false,
    compactRevision: 0,
    cancelReason: "",
    fragment: false,
    events: found ?? events,
  };
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === eventsTag) {
      if (found === undefined) events.push(enterEvent(cursor));
      else found.add(cursor);
    } else if (tag === headerTag) response.revision = readRevision(cursor);
    else if (tag === watchIdTag) response.watchId = cursor.number();
    else if (tag === createdTag) response.created = cursor.number() !== 0;
    else if (tag === canceledTag) response.canceled = cursor.number() !== 0;
    else if (tag === compactRevisionTag) response.compactRevision = cursor.natural();
    else if (tag === cancelReasonTag) response.cancelReason = cursor.view().toString();
    else if (tag === fragmentTag) response.fragment = cursor.number() !== 0;
    else cursor.skip(tag);
  }
  return response;
}

/** Reads the event in this field. Throws a WireFault. */
export function enterEvent(cursor: MessageCursor): DecodedEvent {
  const outer = cursor.enter();
  const event = readEvent(cursor);
  cursor.leave(outer);
  return event;
}

/** Reads the event that the cursor has entered. Throws a WireFault. */
function readEvent(cursor: MessageCursor): DecodedEvent {
  let type = 0;
  let kv: DecodedKeyValue | undefined;
  let previous: DecodedKeyValue | undefined;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === kvTag) kv = readKeyValue(cursor);
    else if (tag === typeTag) type = cursor.number();
    else if (tag === previousTag) previous = readKeyValue(cursor);
    else cursor.skip(tag);
  }
  if (type !== 0 && type !== 1) throw new WireFault(`has an event of an unknown type, ${type}`);
  if (kv === undefined) throw new WireFault("has an event without a key");
  return { isDelete: type === 1, kv, previous };
}

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
  const { watchId, created = false, canceled = false, compactRevision = 0 } = answer;
  const { cancelReason = "" } = answer;
  const fields = [header, watchIdField(watchId)];
  if (created) fields.push(numberField(createdTag, 1));
  if (canceled) fields.push(numberField(canceledTag, 1));
  if (compactRevision > 0) fields.push(numberField(compactRevisionTag, compactRevision));
  if (cancelReason !== "") fields.push(bytesField(cancelReasonTag, Buffer.from(cancelReason)));
  return Buffer.concat(frameOf(...fields));
}

/** Encodes the field of a response with its watch id; empty for the id 0. */
export function watchIdField(watchId: bigint): Buffer {
  return watchId === 0n ? none : numberField(watchIdTag, watchId);
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
