import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { PastEvents } from "../../reflector/backfill/past-events.ts";
import type { ObjectAttributes } from "../request/object-attributes.ts";
import type { EventNode } from "./event-node.ts";
import { OlderEvents } from "./older-events.ts";
import type { OrderedStore } from "./ordered-store.ts";
import type { WatchCache } from "./watch-cache.ts";

/** Number of events linked in one step. */
const eventsPerStep = 64;

/**
 * Links past events to the known events and state: chunk by chunk, from the newest to the oldest.
 *
 * The object of an event is also the `previous` of the next event of its key, or the object in the state. The known
 * one is kept, and the other, with the same content, is dropped. If the known one is absent or has
 * another revision, the event can't have led to the known state.
 */
export class EventLinker {
  readonly #state: OrderedStore;
  readonly #objectAttributes: ObjectAttributes;
  /** Kept objects are copied into slabs of their own, since half of the received bytes are dropped. */
  readonly #slabs = new Slabs(smallestSlab);
  /** The object of each key before its oldest event so far. At most one entry per event in the window. */
  readonly #before = new Map<string, StoredObject | undefined>();

  /** `state` is the state after the newest event. It must not change any more. */
  constructor(state: OrderedStore, objectAttributes: ObjectAttributes) {
    this.#state = state;
    this.#objectAttributes = objectAttributes;
  }

  /** Makes a linker of events before those after `floor`, the node that the window begins after. */
  static *before(
    floor: EventNode,
    { state, eventWindow, objectAttributes }: WatchCache,
  ): TimeSlicedWork<EventLinker> {
    const { newest } = eventWindow;
    const linker = new EventLinker(state.snapshot(), objectAttributes);
    for (let i = 0, node = floor; node !== newest && node.next !== undefined; i++) {
      node = node.next;
      const key = node.event?.object.key;
      if (key !== undefined && !linker.#before.has(key)) linker.#before.set(key, node.previous);
      if (i % eventsPerStep === 0) yield;
    }
    return linker;
  }

  /** Links `past` before `newer`. Returns undefined if the past events can't have led to the known ones. */
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
    const known = this.#before.has(object.key)
      ? this.#before.get(object.key)
      : this.#state.get(object.key);
    const { key } = known ?? object;
    const previous = before === undefined ? undefined : this.#slabs.copy(before, key);
    if (previous !== undefined) this.#objectAttributes.of(previous);
    if (type === "DELETED") {
      if (known !== undefined || previous === undefined) return false;
      this.#before.set(key, previous);
      older.add(new WatchEvent(type, previous.deletedAt(modRevision), undefined), previous);
      return true;
    }
    if (known?.modRevision !== modRevision) return false;
    this.#before.set(key, previous);
    older.add(new WatchEvent(type, known, undefined), previous);
    return true;
  }
}
