import { WatchEvent } from "../../model/event.ts";
import { isRawKey } from "../../model/key-bytes.ts";
import { hashOf } from "../../model/key-hash.ts";
import type { StoredObject } from "../../model/object.ts";

/**
 * One event of the event window, linked to the next one.
 *
 * An unsynced watcher holds the last node that it has read, and follows `next` at its own pace, whether or not the
 * node is still in the window: a held node keeps all later nodes alive, and once no watcher holds it, it is garbage.
 * So retaining events for a stream needs no bookkeeping.
 */
export class EventNode {
  /**
   * Undefined only in the node that a window begins with, until older events are put before it: then it is the last
   * of those. A reader that holds the node has read it in either case.
   */
  event: WatchEvent | undefined;
  /** Whether the event has a raw key, which most watches leave out. */
  isRaw: boolean;
  /** The object just before the event. */
  previous: StoredObject | undefined;
  /** The event's revision; without an event, the revision after which all events follow. */
  revision: number;
  /** Position among the events. Only differences are meaningful: older events may be put before 0. */
  readonly sequence: number;
  /**
   * Memory of all events up to this one, included, in bytes. It counts the previous objects as well, since an event
   * holds its previous object even after that object's own event is dropped. Only differences are meaningful.
   */
  readonly bytes: number;
  /** When it arrived, in the clock's milliseconds. */
  readonly arrivedAt: number;
  next: EventNode | undefined;
  #withPrevious: WatchEvent | undefined;
  #keyHash: string | undefined;

  constructor(
    event: WatchEvent | undefined,
    previous: StoredObject | undefined,
    revision: number,
    sequence: number,
    bytes: number,
    arrivedAt: number,
  ) {
    this.event = event;
    this.isRaw = event !== undefined && isRawKey(event.object.key);
    this.previous = previous;
    this.revision = revision;
    this.sequence = sequence;
    this.bytes = bytes;
    this.arrivedAt = arrivedAt;
    this.next = undefined;
    this.#withPrevious = undefined;
    this.#keyHash = undefined;
  }

  /** The hash of the event's key, for shards; empty without an event. */
  get keyHash(): string {
    this.#keyHash ??= this.event === undefined ? "" : hashOf(this.event.object.key);
    return this.#keyHash;
  }

  /** The event with its `previous`; the same object for all readers. */
  get eventWithPrevious(): WatchEvent | undefined {
    if (this.event === undefined || this.previous === undefined) return this.event;
    this.#withPrevious ??= new WatchEvent(this.event.type, this.event.object, this.previous);
    return this.#withPrevious;
  }
}

/** The last node at the revision of `node`. */
export function lastOfRevision(node: EventNode): EventNode {
  let last = node;
  while (last.next !== undefined && last.next.revision === node.revision) last = last.next;
  return last;
}

/** The last node at or below `revision`, from `from` on. Follows links, as a round may exceed the event window. */
export function lastUpTo(revision: number, from: EventNode): EventNode {
  let node = from;
  while (node.next !== undefined && node.next.revision <= revision) node = node.next;
  return node;
}
