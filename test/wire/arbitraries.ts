import { type EventType, WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { StoredObject } from "../../src/model/object.ts";
import { Slabs } from "../../src/model/slabs.ts";
import fc from "../property.ts";

export const revisions = fc.oneof(
  fc.integer({ min: 1, max: 300 }),
  fc.maxSafeInteger().map((n) => Math.abs(n) || 1),
  fc.constantFrom(2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 35 - 1, 2 ** 35, 2 ** 53 - 1),
);

const leases = fc.oneof(
  fc.constantFrom(0n, 127n, 128n, 2n ** 63n - 1n),
  fc.bigInt(0n, 2n ** 63n - 1n),
);

const keys = fc.oneof(
  fc.string({ unit: "binary", minLength: 1, maxLength: 20 }),
  fc.integer({ min: 126, max: 129 }).map((length) => "k".repeat(length)),
);

export function objectsAt(modRevision: fc.Arbitrary<number>): fc.Arbitrary<StoredObject> {
  return fc
    .tuple(keys, fc.uint8Array({ maxLength: 200 }), revisions, modRevision, revisions, leases)
    .map((fields) => new StoredObject(...fields))
    .chain((object) => fc.constantFrom(object, inSlab(object, object.modRevision)));
}

const slabs = new Slabs(2048);

/** The same object at this revision, with its encoded form. */
function inSlab(object: StoredObject, modRevision: number): StoredObject {
  const { key, createRevision, version, lease } = object;
  const value = Buffer.from(object.value);
  const size = Buffer.byteLength(key);
  const end = value.byteLength;
  return slabs.store(key, size, value, 0, end, createRevision, modRevision, version, lease);
}

/** The same object at this revision, with its encoded form if it has one. */
function at(object: StoredObject, modRevision: number): StoredObject {
  return object.encodedStart < 0 ? object.deletedAt(modRevision) : inSlab(object, modRevision);
}

const types = fc.constantFrom<EventType>("ADDED", "MODIFIED", "DELETED");

export function eventsAt(revision: fc.Arbitrary<number>): fc.Arbitrary<WatchEvent> {
  const previous = fc.option(objectsAt(revisions), { nil: undefined });
  return fc
    .tuple(types, objectsAt(revision), previous)
    .map(([type, object, before]) => new WatchEvent(type, object, before));
}

/** The batches after a resume point: complete revisions in order, and a bookmark with a higher revision. */
export const liveBatches: fc.Arbitrary<WatchBatch> = fc
  .array(fc.array(eventsAt(fc.constant(0)), { minLength: 1, maxLength: 6 }), { maxLength: 8 })
  .chain((groups) => fc.tuple(fc.constant(groups), fc.integer({ min: 1, max: 2 ** 40 })))
  .map(([groups, first]) => {
    const events = groups.flatMap((group, i) =>
      group.map(({ type, object, previous }) => {
        return new WatchEvent(type, at(object, first + i), previous);
      }),
    );
    return new WatchBatch(first + groups.length, events);
  });

/** Part of an initial state: in key order, so the revisions are in no order. */
export const initialBatches: fc.Arbitrary<WatchBatch> = fc
  .tuple(fc.array(eventsAt(revisions), { maxLength: 20 }), fc.option(revisions))
  .map(([events, end]) => new WatchBatch(end ?? undefined, events, end !== null));
