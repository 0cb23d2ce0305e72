import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { KeptChanges } from "./journal.ts";
import { RecordFault, RecordReader } from "./record.ts";

/*
 * Makes objects and events of the records that the thread has found. Each throws a RecordFault for records that can't be the
 * answer: they have crossed a disk, two threads and much code since they were written.
 */

export interface StatePart {
  readonly objects: readonly StoredObject[];
  /** The last key, with those of deletions. */
  readonly last: Buffer | undefined;
}

/** A part of the state from the newest record of each key, which are after the last key of the part before. */
export function readState(records: Uint8Array, after: Buffer | undefined): StatePart {
  const reader = new RecordReader(records);
  const objects: StoredObject[] = [];
  let last = after;
  while (reader.next()) {
    const { key } = reader;
    if (last !== undefined && last.compare(key) >= 0)
      throw new RecordFault("keys are not in order");
    last = key;
    if (!reader.isDeleted) objects.push(reader.object());
  }
  return { objects, last };
}

/** The objects of a page. */
export function readObjects(records: Uint8Array): readonly StoredObject[] {
  const { objects, last } = readState(records, undefined);
  if (last !== undefined && objects.length === 0) throw new RecordFault("a deletion is in a page");
  return objects;
}

/** The changes of whole revisions, each change followed by the record before it. */
export function readChanges(records: Uint8Array): readonly KeptChanges[] {
  const reader = new RecordReader(records);
  const changes: KeptChanges[] = [];
  let events: WatchEvent[] = [];
  while (reader.next()) {
    const { revision, isLast } = reader;
    events.push(readChange(reader));
    if (!isLast) continue;
    changes.push({ revision, events });
    events = [];
  }
  if (events.length > 0) throw new RecordFault("a revision is cut off");
  return changes;
}

/** The changes of a key, each deletion followed by what it has deleted. */
export function readHistory(records: Uint8Array): readonly WatchEvent[] {
  const reader = new RecordReader(records);
  const events: WatchEvent[] = [];
  while (reader.next()) {
    if (reader.isDeleted) events.push(withoutPrevious(readChange(reader)));
    else {
      const type = reader.isCreation ? "ADDED" : "MODIFIED";
      events.push(new WatchEvent(type, reader.object(), undefined));
    }
  }
  return events;
}

function readChange(reader: RecordReader): WatchEvent {
  const { revision, isDeleted, isCreation } = reader;
  if (isCreation) return new WatchEvent("ADDED", reader.object(), undefined);
  const object = isDeleted ? undefined : reader.object();
  const { key } = reader;
  if (!reader.next() || reader.isDeleted || !reader.key.equals(key)) {
    throw new RecordFault("the version before a change is missing");
  }
  const previous = reader.object();
  return object === undefined
    ? new WatchEvent("DELETED", previous.deletedAt(revision), previous)
    : new WatchEvent("MODIFIED", object, previous);
}

function withoutPrevious({ type, object }: WatchEvent): WatchEvent {
  return new WatchEvent(type, object, undefined);
}
