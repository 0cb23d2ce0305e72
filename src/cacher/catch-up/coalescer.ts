import { type EventType, WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";

/** What has become of one object since the fold began. */
interface Entry {
  /** The type of its first event, which says whether it was in view before. */
  readonly first: EventType;
  /** The previous of its first event, if that stood before the fold began. */
  readonly previous: StoredObject | undefined;
  last: WatchEvent;
}

/** How many events are made between two looks at the clock. */
const eventsPerStep = 512;

/**
 * Events as one filter sees them, folded by key: for each object what it was before the first, and its
 * newest state. So it never holds more than one entry for an object, however many events it takes in.
 */
export class Coalescer {
  readonly #after: number;
  /** In the order of their last events. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  /** Of what comes after the revision `after`. */
  constructor(after: number) {
    this.#after = after;
  }

  /** How many objects it holds something of. */
  get size(): number {
    return this.#entries.size;
  }

  /** By weight. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Takes in the next event. They come in the order of their revisions. Where an object has left the view
   * it may still stand: `gone` is to be told when it no longer does.
   */
  add(event: WatchEvent): void {
    const { key } = event.object;
    const known = this.#entries.get(key);
    if (known === undefined) {
      const previous = this.#stoodBefore(event.previous) ? event.previous : undefined;
      this.#put(key, { first: event.type, previous, last: event });
      return;
    }
    // Behind all others, as it is in the order of its newest event.
    this.#drop(key, known);
    known.last = event;
    this.#put(key, known);
  }

  /**
   * The object, whose events up to now have been added, does not stand any more. If nothing is to be told of
   * it and it did not stand before the fold either, then it is forgotten: objects that come and go add
   * nothing, however many they are.
   */
  objectDeleted(key: string): void {
    const known = this.#entries.get(key);
    if (known === undefined || known.previous !== undefined) return;
    if (isNothing(known.first, known.last.type)) this.#drop(key, known);
  }

  /**
   * Puts into `to` what is to be told, one event for each object, in the order of revisions. Yields now and
   * then.
   */
  *emit(to: { push(event: WatchEvent): unknown }): Generator<void, void, void> {
    let steps = 0;
    for (const { first, previous, last } of this.#entries.values()) {
      if (!isNothing(first, last.type)) {
        const type = coalescedType(first, last.type);
        const same = type === last.type && previous === last.previous;
        to.push(same ? last : new WatchEvent(type, last.object, previous));
      }
      if (++steps % eventsPerStep === 0) yield;
    }
  }

  /** What was only made out of view since is no more what was before the fold than what was made in view. */
  #stoodBefore(object: StoredObject | undefined): boolean {
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

/** Whether an object was out of view before and is again. */
function isNothing(first: EventType, last: EventType): boolean {
  return first === "ADDED" && last === "DELETED";
}

function coalescedType(first: EventType, last: EventType): EventType {
  if (first === "ADDED") return "ADDED";
  return last === "DELETED" ? "DELETED" : "MODIFIED";
}

function cost({ previous, last }: Entry): number {
  return memoryBytes(last.object) + (previous === undefined ? 0 : memoryBytes(previous));
}
