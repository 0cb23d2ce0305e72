import { WatchFanoutError } from "../../base/errors.ts";
import { type EventType, WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Slabs } from "../../model/slabs.ts";
import type { Event__Output as WireEvent } from "../../wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output as WireObject } from "../../wire/generated/watchfanout/v1/StoredObject.ts";

/**
 * The typed form of what comes off the wire. Throws INTERNAL where a server sends what the contract
 * rules out, so that nothing wrong is handed on as if it were right.
 *
 * The content is copied into `slabs`: a view would keep the whole message in memory for as long as one of its
 * objects lives, and nothing that counts bytes would see it.
 */
export function decodeObject(wire: WireObject | null, slabs: Slabs): StoredObject {
  if (wire === null) throw broken("an answer without its object");
  const { key, value } = wire;
  if (key === "") throw broken("an object without a key");
  return slabs.store(
    key,
    Buffer.byteLength(key),
    value,
    0,
    value.byteLength,
    decodeRevision(wire.create_revision),
    decodeRevision(wire.mod_revision),
    decodeRevision(wire.version),
    decodeLease(wire.lease),
  );
}

const eventTypes: Readonly<Record<string, EventType>> = {
  EVENT_TYPE_ADDED: "ADDED",
  EVENT_TYPE_MODIFIED: "MODIFIED",
  EVENT_TYPE_DELETED: "DELETED",
};

export function decodeEvent(wire: WireEvent, slabs: Slabs): WatchEvent {
  const type = eventTypes[wire.type];
  if (type === undefined) throw broken(`an event of the type ${wire.type}`);
  const previous = wire.previous === null ? undefined : decodeObject(wire.previous, slabs);
  return new WatchEvent(type, decodeObject(wire.object, slabs), previous);
}

/** An int64 as a `number`, which holds every revision below 2^53. */
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

/** INTERNAL: the server has sent this, which ours never does. */
export function broken(what: string): WatchFanoutError {
  return new WatchFanoutError(
    "INTERNAL",
    `The server sent ${what}, which its contract rules out. Is what answers there watch-fanout, and of a version that goes with this client?`,
  );
}
