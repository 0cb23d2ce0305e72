import { type EventType, type WatchBatch, WatchEvent } from "../model/event.ts";
import { isRawKey, keyBytes, keyText } from "../model/key-bytes.ts";
import type { StoredObject } from "../model/object.ts";
import { encodedSize, objectTag, readObject, writeObject } from "../model/object-encoding.ts";
import { type MessageCursor, WireFault } from "../protobuf/message-cursor.ts";
import { bytesFieldSize, type WireWriter } from "../protobuf/wire-writer.ts";

/*
 * An object is kept in its encoded form, so that one that was read is sent without encoding it again. A raw key (see
 * model/key-bytes.ts) is not in that form, and stands before it as field 1.
 */

const rawKeyTag = 0x0a;

/** Size of an object in a file, in bytes. */
export function objectBytes(object: StoredObject): number {
  return rawKeyBytes(object.key) + encodedSize(object);
}

export function writeRecord(writer: WireWriter, object: StoredObject): void {
  if (isRawKey(object.key)) {
    const key = keyBytes(object.key);
    writer.byte(rawKeyTag);
    writer.varint(key.length);
    writer.raw(key);
  }
  writeObject(writer, objectTag, object);
}

/** Reads an object, which keeps the bytes of the cursor. Throws a WireFault. */
export function readRecord(cursor: MessageCursor, isAscii: boolean): StoredObject {
  const { bytes, position } = cursor;
  if (bytes[position] !== rawKeyTag) return readObject(cursor, isAscii);
  cursor.next();
  cursor.content();
  return readObject(cursor, false, keyText(bytes, cursor.start, cursor.end));
}

function rawKeyBytes(key: string): number {
  return isRawKey(key) ? bytesFieldSize(keyBytes(key).length) : 0;
}

/*
 * A log is a sequence of batches and of ids of the history. A batch:
 *
 *     1, revision + 1 or 0, when it came, whether it is atomic, number of events, the events: what it is, object, previous
 */

const batchRecord = 1;
const historyRecord = 2;

const eventTypes: readonly EventType[] = ["ADDED", "MODIFIED", "DELETED"];
/** Added to the index of the type. */
const hasPrevious = 4;

/** Maximum size of a batch without its objects, in bytes, and of each event. */
const batchHeadBytes = 32;

/** Maximum size of a batch in a log, in bytes. */
export function batchBytes({ events }: WatchBatch): number {
  let bytes = batchHeadBytes;
  for (const { object, previous } of events) {
    bytes += 1 + objectBytes(object) + (previous === undefined ? 0 : objectBytes(previous));
  }
  return bytes;
}

export function writeBatch(writer: WireWriter, batch: WatchBatch, syncedAt: number): void {
  const { revision, events } = batch;
  writer.byte(batchRecord);
  writer.varint(revision === undefined ? 0 : revision + 1);
  writer.varint(syncedAt);
  writer.byte(batch.isAtomic ? 1 : 0);
  writer.varint(events.length);
  for (const { type, object, previous } of events) {
    writer.byte(eventTypes.indexOf(type) + (previous === undefined ? 0 : hasPrevious));
    writeRecord(writer, object);
    if (previous !== undefined) writeRecord(writer, previous);
  }
}

/** Maximum size of the id of a history in a log, in bytes. */
export function historyBytes(historyId: string): number {
  return batchHeadBytes + Buffer.byteLength(historyId);
}

export function writeHistory(writer: WireWriter, historyId: string): void {
  writer.byte(historyRecord);
  writer.textField(0, historyId, Buffer.byteLength(historyId));
}

/** What a log has. */
export type LogRecord =
  | { readonly historyId: string }
  | {
      readonly revision: number | undefined;
      readonly events: readonly WatchEvent[];
      readonly isAtomic: boolean;
      readonly syncedAt: number;
    };

/** Reads the next record of a log, whose objects keep the bytes of the cursor. Throws a WireFault. */
export function readLogRecord(cursor: MessageCursor): LogRecord {
  const type = cursor.natural();
  if (type === historyRecord) {
    cursor.natural();
    return { historyId: cursor.text() };
  }
  if (type !== batchRecord) throw new WireFault(`has a record of the unknown type ${type}`);
  const revision = cursor.natural();
  const syncedAt = cursor.natural();
  const isAtomic = cursor.natural() === 1;
  const count = cursor.natural();
  const events: WatchEvent[] = [];
  for (let i = 0; i < count; i++) events.push(readEvent(cursor));
  return { revision: revision === 0 ? undefined : revision - 1, events, isAtomic, syncedAt };
}

function readEvent(cursor: MessageCursor): WatchEvent {
  const flags = cursor.natural();
  const type = eventTypes[flags % hasPrevious];
  if (type === undefined) throw new WireFault(`has an event of the unknown type ${flags}`);
  const object = readRecord(cursor, false);
  return new WatchEvent(type, object, flags < hasPrevious ? undefined : readRecord(cursor, false));
}
