import { WatchEvent } from "./event.ts";
import type { StoredObject } from "./object.ts";

/**
 * Translates an event into what it means for the set of objects that a predicate selects: an object that enters the set
 * is ADDED, one that stays MODIFIED, one that leaves DELETED with its last content in the set. Returns undefined for an
 * object that was and is outside. Needs the event's `previous`.
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

/** Selects objects by their content. Pure, cheap, and never throws. */
export type Predicate = (object: StoredObject) => boolean;

const numbers = new WeakMap<Predicate, number>();

let counted = 0;

/** A number that identifies the function; 0 for undefined. */
export function predicateIdentity(predicate: Predicate | undefined): number {
  if (predicate === undefined) return 0;
  let number = numbers.get(predicate);
  if (number === undefined) {
    number = ++counted;
    numbers.set(predicate, number);
  }
  return number;
}
