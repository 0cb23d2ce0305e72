import type { Event__Output } from "../../src/wire/generated/watchfanout/v1/Event.ts";
import type { StoredObject__Output } from "../../src/wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";

/** Messages in the form that the decoder returns. */
export function wireObject(key: string, modRevision: number, value = "v"): StoredObject__Output {
  return {
    key,
    value: Buffer.from(value),
    create_revision: "1",
    mod_revision: String(modRevision),
    version: "1",
    lease: "0",
    attributes: null,
    undecodable: false,
  };
}

export function wireEvent(
  type: "ADDED" | "MODIFIED" | "DELETED",
  key: string,
  modRevision: number,
): Event__Output {
  return { type: `EVENT_TYPE_${type}`, object: wireObject(key, modRevision), previous: null };
}

/** Without a revision its batch remains open. */
export function wireResponse(
  revision: number | undefined,
  events: Event__Output[] = [],
  more: Partial<WatchResponse__Output> = {},
): WatchResponse__Output {
  const closing = revision === undefined ? {} : { revision: String(revision) };
  return { ...closing, events, initial_events_end: false, history_id: "", ...more };
}
