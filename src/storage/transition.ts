import { WatchEvent } from "./event.ts";
import type { Predicate } from "./storage.ts";

/**
 * What an event, with its previous, is to the set of objects that a predicate picks: entering it is
 * ADDED, staying MODIFIED, leaving DELETED with the last content that was in it. Undefined for one that
 * was and is outside.
 */
export function transition(event: WatchEvent, predicate: Predicate): WatchEvent | undefined {
  const { type, object, previous } = event;
  const before = previous !== undefined && predicate(previous);
  const after = type !== "DELETED" && predicate(object);
  if (after) {
    const becomes = before ? "MODIFIED" : "ADDED";
    return type === becomes ? event : new WatchEvent(becomes, object, previous);
  }
  if (!before) return undefined;
  if (type === "DELETED") return event;
  return new WatchEvent("DELETED", previous.deletedAt(event.revision), previous);
}
