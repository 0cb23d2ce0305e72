import type { TimeSlicedWork } from "../../base/time-slices.ts";
import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { PastEvents } from "../../reflector/backfill/past-events.ts";
import type { ObjectAttributes } from "../request/object-attributes.ts";
import type { EventNode } from "./event-node.ts";
import { OlderEvents } from "./older-events.ts";
import type { OrderedStore } from "./ordered-store.ts";

/** How many events are linked in one step. */
const eventsPerStep = 64;

/**
 * Makes the events of before fit what is known: piece by piece, from the newest to the oldest.
 *
 * An object that an event made is the one that the next event of its key has as its `previous`, or the one in
 * the state: that one is kept, and the other, which has the same content, is not. If there is no such object,
 * or it is of another revision, the event can't have led to what is known.
 */
export class EventLinker {
  readonly #state: OrderedStore;
  readonly #objectAttributes: ObjectAttributes;
  /** What is kept has slabs of its own: half of what came with it is not. */
  readonly #slabs = new Slabs(smallestSlab);
  /** What each key was before its oldest event so far. At most one entry for each event in the window. */
  readonly #before = new Map<string, StoredObject | undefined>();

  /** `state` is the one that the newest event has led to. It is not to change any more. */
  constructor(state: OrderedStore, objectAttributes: ObjectAttributes) {
    this.#state = state;
    this.#objectAttributes = objectAttributes;
  }

  /** Links `past` before `newer`. Returns undefined if it can't have led to what came later. */
  *link(past: PastEvents, newer: EventNode): TimeSlicedWork<OlderEvents | undefined> {
    const older = new OlderEvents(newer, past.after);
    const { events } = past;
    for (let i = events.length - 1; i >= 0; i--) {
      const event = events[i];
      if (event === undefined || !this.#add(older, event)) return undefined;
      if (i % eventsPerStep === 0) yield;
    }
    return older;
  }

  #add(older: OlderEvents, { type, object, previous: before }: WatchEvent): boolean {
    const { modRevision } = object;
    const made = this.#before.has(object.key)
      ? this.#before.get(object.key)
      : this.#state.get(object.key);
    const { key } = made ?? object;
    const previous = before === undefined ? undefined : this.#slabs.copy(before, key);
    if (previous !== undefined) this.#objectAttributes.of(previous);
    if (type === "DELETED") {
      if (made !== undefined || previous === undefined) return false;
      this.#before.set(key, previous);
      older.add(new WatchEvent(type, previous.deletedAt(modRevision), undefined), previous);
      return true;
    }
    if (made?.modRevision !== modRevision) return false;
    this.#objectAttributes.of(made);
    this.#before.set(key, previous);
    older.add(new WatchEvent(type, made, undefined), previous);
    return true;
  }
}
