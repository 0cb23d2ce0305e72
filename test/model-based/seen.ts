import type { WatchBatch } from "../../src/model/event.ts";
import type { StoredObject } from "../../src/model/object.ts";
import type { SeenObject, SeenResponse } from "../guarantees/recording.ts";

/** The object for comparison, without the attributes that the cache stores in it. */
export function seenObject(object: StoredObject): SeenObject {
  const { key, value, createRevision, modRevision, version } = object;
  return {
    key,
    value: Buffer.from(value).toString("latin1"),
    createRevision,
    modRevision,
    version,
  };
}

export function seenResponse(batch: WatchBatch): SeenResponse {
  const { revision, initialEventsEnd } = batch;
  const events = batch.events.map(({ type, object, previous }) => ({
    type,
    object: seenObject(object),
    previous: previous === undefined ? undefined : seenObject(previous),
  }));
  return { revision, events, initialEventsEnd };
}
