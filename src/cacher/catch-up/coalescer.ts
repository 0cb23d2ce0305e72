import { type EventType, WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import type { Filter } from "../state/filter.ts";

/** The coalesced events of one object. */
interface Entry {
  /** Type of its first event: ADDED if it did not match the filter before. */
  readonly first: EventType;
  /** The previous object of its first event, if it existed before the first coalesced revision. */
  readonly previous: StoredObject | undefined;
  last: WatchEvent;
}

/** Number of events emitted between two yields. */
const eventsPerStep = 512;

/**
 * Coalesces the events of one filter by key: keeps the object before its first event, and its newest state. So it has
 * at most one entry per object, regardless of the number of events.
 */
export class Coalescer {
  readonly #filter: Pick<Filter, "delivers">;
  readonly #after: number;
  /** In the order of their last events. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  /** Coalesces the events of the filter after the revision `after`. */
  constructor(filter: Pick<Filter, "delivers">, after: number) {
    this.#filter = filter;
    this.#after = after;
  }

  /** Number of objects with an entry. */
  get size(): number {
    return this.#entries.size;
  }

  /** Memory bytes of the objects in the entries. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Adds the next event, in the order of revisions. A DELETED event may also mean that the object exists and no longer
   * matches the filter, so the caller reports real deletions by `objectDeleted`.
   */
  add(event: WatchEvent): void {
    const { key } = event.object;
    const known = this.#entries.get(key);
    if (known === undefined) {
      const previous = this.#existedBefore(event.previous) ? event.previous : undefined;
      this.#put(key, { first: event.type, previous, last: event });
      return;
    }
    // Entries are in the order of their last events, so this one moves to the end.
    this.#drop(key, known);
    known.last = event;
    this.#put(key, known);
  }

  /**
   * The object was deleted, after its events were added. Drops its entry if its events cancel out and it did not exist
   * before the first coalesced revision. So objects that are created and deleted take no memory.
   */
  objectDeleted(key: string): void {
    const known = this.#entries.get(key);
    if (known === undefined || known.previous !== undefined) return;
    if (cancelsOut(known.first, known.last.type)) this.#drop(key, known);
  }

  /** Pushes one event per object to `to`, in the order of revisions. Yields every `eventsPerStep` entries. */
  *emit(to: { push(event: WatchEvent): unknown }): Generator<void, void, void> {
    let steps = 0;
    for (const { first, previous, last } of this.#entries.values()) {
      if (!cancelsOut(first, last.type)) {
        const type = coalescedType(first, last.type);
        const same = type === last.type && previous === last.previous;
        const event = same ? last : new WatchEvent(type, last.object, previous);
        if (this.#filter.delivers(event)) to.push(event);
      }
      if (++steps % eventsPerStep === 0) yield;
    }
  }

  /** Whether the object existed at the revision `after`, and not only since, without matching the filter. */
  #existedBefore(object: StoredObject | undefined): boolean {
    return object !== undefined && object.createRevision <= this.#after;
  }

  #put(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
    this.#bytes += cost(entry);
  }

  #drop(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#bytes -= cost(entry);
  }
}

/** Whether the events cancel out: the object did not match before them and does not match after them. */
function cancelsOut(first: EventType, last: EventType): boolean {
  return first === "ADDED" && last === "DELETED";
}

function coalescedType(first: EventType, last: EventType): EventType {
  if (first === "ADDED") return "ADDED";
  return last === "DELETED" ? "DELETED" : "MODIFIED";
}

function cost({ previous, last }: Entry): number {
  return memoryBytes(last.object) + (previous === undefined ? 0 : memoryBytes(previous));
}
