import { WatchFanoutError } from "../../base/errors.ts";
import { type EventType, WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Slabs } from "../../model/slabs.ts";
import { textSize } from "../../protobuf/text.ts";
import { Attributes, undecodableAttributes } from "../../selector/attributes.ts";
import type { Duration__Output } from "../../wire/generated/google/protobuf/Duration.ts";
import type { Event__Output as WireEvent } from "../../wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output as WireObject } from "../../wire/generated/watchfanout/v1/StoredObject.ts";

/**
 * Decodes an object of a response. Throws INTERNAL if the server violates the contract, so that invalid data is never
 * passed on.
 *
 * The content is copied to `slabs`: a view would keep the whole message in memory as long as one of its objects, and
 * no bound on bytes would count it.
 */
export function decodeObject(wire: WireObject | null, slabs: Slabs): StoredObject {
  if (wire === null) throw broken("a response without its object");
  const { key, value } = wire;
  if (key === "") throw broken("an object without a key");
  const object = slabs.store(
    key,
    textSize(key),
    value,
    0,
    value.byteLength,
    decodeRevision(wire.create_revision),
    decodeRevision(wire.mod_revision),
    decodeRevision(wire.version),
    decodeLease(wire.lease),
  );
  object.attributes = decodeAttributes(wire);
  return object;
}

function decodeAttributes({ attributes, undecodable }: WireObject): Attributes | undefined {
  if (undecodable) return undecodableAttributes;
  if (attributes === null) return undefined;
  const { labels, fields } = attributes;
  return new Attributes(new Map(Object.entries(labels)), new Map(Object.entries(fields)));
}

const eventTypes: Readonly<Record<string, EventType>> = {
  EVENT_TYPE_ADDED: "ADDED",
  EVENT_TYPE_MODIFIED: "MODIFIED",
  EVENT_TYPE_DELETED: "DELETED",
};

export function decodeEvent(wire: WireEvent, slabs: Slabs): WatchEvent {
  const type = eventTypes[wire.type];
  if (type === undefined) throw broken(`an event of type ${wire.type}`);
  const previous = wire.previous === null ? undefined : decodeObject(wire.previous, slabs);
  return new WatchEvent(type, decodeObject(wire.object, slabs), previous);
}

/** Converts a google.protobuf.Duration to milliseconds; undefined if absent. Throws INTERNAL if it is negative. */
export function decodeDuration(wire: Duration__Output | null): number | undefined {
  if (wire === null) return undefined;
  const ms = Number(wire.seconds) * 1_000 + wire.nanos / 1e6;
  if (!(ms >= 0)) throw broken(`a duration of ${wire.seconds} s and ${wire.nanos} ns`);
  return ms;
}

/** Converts an int64 to a `number`, which is exact for every revision below 2^53. Throws INTERNAL beyond. */
export function decodeRevision(wire: string): number {
  const revision = Number(wire);
  if (!Number.isSafeInteger(revision) || revision < 0) throw broken(`the revision ${wire}`);
  return revision;
}

function decodeLease(wire: string): bigint {
  const lease = BigInt(wire);
  if (lease < 0n) throw broken(`the lease ${wire}`);
  return lease;
}

/** INTERNAL: the server sent a message that violates the contract. */
export function broken(what: string): WatchFanoutError {
  return new WatchFanoutError(
    "INTERNAL",
    `The server sent ${what}, which violates its contract. Is the server watch-fanout, in a version that is compatible with this client?`,
  );
}
