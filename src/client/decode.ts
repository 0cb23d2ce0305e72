import { WatchFanoutError } from "../errors.ts";
import { type EventType, WatchEvent } from "../storage/event.ts";
import { StoredObject } from "../storage/object.ts";
import type { Event__Output as WireEvent } from "../wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output as WireObject } from "../wire/generated/watchfanout/v1/StoredObject.ts";

/**
 * The typed form of what comes off the wire. Throws INTERNAL where a server sends what the contract
 * rules out, so that nothing wrong is handed on as if it were right.
 */
export function decodeObject(wire: WireObject | null): StoredObject {
  if (wire === null) throw broken("an answer without its object");
  if (wire.key === "") throw broken("an object without a key");
  return new StoredObject(
    wire.key,
    wire.value,
    decodeRevision(wire.create_revision),
    decodeRevision(wire.mod_revision),
    decodeRevision(wire.version),
    BigInt(wire.lease),
  );
}

const eventTypes: Readonly<Record<string, EventType>> = {
  EVENT_TYPE_ADDED: "ADDED",
  EVENT_TYPE_MODIFIED: "MODIFIED",
  EVENT_TYPE_DELETED: "DELETED",
};

export function decodeEvent(wire: WireEvent): WatchEvent {
  const type = eventTypes[wire.type];
  if (type === undefined) throw broken(`an event of the type ${wire.type}`);
  const previous = wire.previous === null ? undefined : decodeObject(wire.previous);
  return new WatchEvent(type, decodeObject(wire.object), previous);
}

/** An int64 as a `number`, which holds every revision below 2^53. */
export function decodeRevision(wire: string): number {
  const revision = Number(wire);
  if (!Number.isSafeInteger(revision) || revision < 0) throw broken(`the revision ${wire}`);
  return revision;
}

function broken(what: string): WatchFanoutError {
  return new WatchFanoutError(
    "INTERNAL",
    `The server sent ${what}, which its contract rules out. Is what answers there watch-fanout, and of a version that goes with this client?`,
  );
}
