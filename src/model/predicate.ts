import { WatchEvent } from "./event.ts";
import type { StoredObject } from "./object.ts";

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

/** Picks objects by their content. Pure, cheap, and never throws. */
export type Predicate = (object: StoredObject) => boolean;

const numbers = new WeakMap<Predicate, number>();

let counted = 0;

/** Predicates are told apart by which function they are. 0: none. */
export function predicateIdentity(predicate: Predicate | undefined): number {
  if (predicate === undefined) return 0;
  let number = numbers.get(predicate);
  if (number === undefined) {
    number = ++counted;
    numbers.set(predicate, number);
  }
  return number;
}
