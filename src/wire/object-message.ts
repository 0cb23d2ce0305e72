import type { StoredObject } from "../model/object.ts";

/** An object as a message of the proto, for responses with several kinds of objects; null: it does not exist. */
export function objectMessage(object: StoredObject | undefined) {
  if (object === undefined) return null;
  const { key, value, createRevision, modRevision, version, lease } = object;
  return {
    ...{ key, value, version, lease: String(lease) },
    ...{ create_revision: createRevision, mod_revision: modRevision },
  };
}
