import { MessageCursor, WireFault } from "../../../protobuf/message-cursor.ts";
import {
  type DecodedKeyValue,
  type DecodedKeyValues,
  KeyValueColumns,
  readKeyValue,
} from "./key-values.ts";

/*
 * The two frequent responses of etcd, which may have a hundred thousand objects, decoded by hand: etcd3's generic
 * decoder takes about 6 µs per object. A tag is the field's number in etcd3's proto/rpc.proto or kv.proto, shifted by
 * three, and its wire type. Absent fields have their default, unknown ones are skipped, and invalid ones throw, which
 * gRPC turns into the error that ends the call.
 */

export interface DecodedRange {
  /** The store's own revision. */
  readonly revision: number;
  readonly kvs: DecodedKeyValues;
  readonly more: boolean;
  /** Number of keys in the range, regardless of the limit. */
  readonly count: number;
}

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

/** @throws Error if the bytes are not a RangeResponse, or a number in it can't be held exactly */
export function decodeRange(message: Buffer): DecodedRange {
  return decoding("RangeResponse", message, readRange);
}

/** @throws Error if the bytes are not a WatchResponse, or a number in it can't be held exactly */
export function decodeWatch(message: Buffer): DecodedWatch {
  return decoding("WatchResponse", message, (cursor) => readWatch(cursor));
}

/**
 * As `decodeWatch`, but only finds the events, which takes a thirtieth of the time, and decodes each when it is read: a
 * response to a watch from the past may have a hundred thousand.
 *
 * @throws Error as `decodeWatch`, also when an event is read
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

function decoding<Message>(
  name: string,
  message: Buffer,
  read: (cursor: MessageCursor) => Message,
): Message {
  try {
    return read(new MessageCursor(message));
  } catch (error) {
    if (!(error instanceof WireFault)) throw error;
    throw new Error(`the ${name} of ${message.length} bytes ${error.message}`, { cause: error });
  }
}

/** The field `kvs` of a RangeResponse. */
const kvsTag = 0x12;

function readRange(cursor: MessageCursor): DecodedRange {
  const kvs = new KeyValueColumns(cursor.bytes, countOf(kvsTag, cursor.bytes));
  let revision = 0;
  let more = false;
  let count = 0;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === kvsTag) kvs.add(cursor);
    else if (tag === 0x0a) revision = readHeader(cursor);
    else if (tag === 0x18) more = cursor.number() !== 0;
    else if (tag === 0x20) count = cursor.natural();
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

/** With `found`, records the positions of the events and does not decode them. */
function readWatch(cursor: MessageCursor, found?: FoundEvents): DecodedWatch {
  const events: DecodedEvent[] = [];
  let revision = 0;
  let watchId = 0;
  let created = false;
  let canceled = false;
  let compactRevision = 0;
  let cancelReason = "";
  let fragment = false;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x5a) {
      if (found === undefined) events.push(enterEvent(cursor));
      else found.add(cursor);
    } else if (tag === 0x0a) revision = readHeader(cursor);
    else if (tag === 0x10) watchId = cursor.number();
    else if (tag === 0x18) created = cursor.number() !== 0;
    else if (tag === 0x20) canceled = cursor.number() !== 0;
    else if (tag === 0x28) compactRevision = cursor.natural();
    else if (tag === 0x32) cancelReason = readText(cursor);
    else if (tag === 0x38) fragment = cursor.number() !== 0;
    else cursor.skip(tag);
  }
  return {
    revision,
    watchId,
    created,
    canceled,
    compactRevision,
    cancelReason,
    fragment,
    events: found ?? events,
  };
}

function readText(cursor: MessageCursor): string {
  cursor.content();
  return cursor.bytes.toString("utf8", cursor.start, cursor.end);
}

function readHeader(cursor: MessageCursor): number {
  let revision = 0;
  const outer = cursor.enter();
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x18) revision = cursor.natural();
    else cursor.skip(tag);
  }
  cursor.leave(outer);
  return revision;
}

function enterEvent(cursor: MessageCursor): DecodedEvent {
  const outer = cursor.enter();
  const event = readEvent(cursor);
  cursor.leave(outer);
  return event;
}

function readEvent(cursor: MessageCursor): DecodedEvent {
  let type = 0;
  let kv: DecodedKeyValue | undefined;
  let previous: DecodedKeyValue | undefined;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x12) kv = readKeyValue(cursor);
    else if (tag === 0x08) type = cursor.number();
    else if (tag === 0x1a) previous = readKeyValue(cursor);
    else cursor.skip(tag);
  }
  if (type !== 0 && type !== 1) throw new WireFault(`has an event of an unknown type, ${type}`);
  if (kv === undefined) throw new WireFault("has an event without a key");
  return { isDelete: type === 1, kv, previous };
}
