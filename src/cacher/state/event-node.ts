import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";

/**
 * One event in history, linked to the one after it.
 *
 * The link is what makes readers simple: a cache watcher that is behind holds the last node that it
 * has dealt with and follows `next` whenever it likes. Whether that node still is within the window
 * does not matter to the link: as long as someone holds it, what follows it stays, and once nobody
 * does it is garbage. So "kept for this stream by reference" needs no bookkeeping at all.
 */
export class EventNode {
  /**
   * Undefined only in the nodes that histories begin with, until older events are put before them: then it is
   * the last of those. A reader that holds the node has dealt with it either way.
   */
  event: WatchEvent | undefined;
  /** The object just before the event. */
  previous: StoredObject | undefined;
  /** The event's. Without one everything after this revision follows. */
  revision: number;
  /** Counts the events of this history. Only differences mean something: older events may be put before 0. */
  readonly sequence: number;
  /**
   * What all events up to and including this one take, in bytes, with the objects before them: these are held for
   * as long as the event is, whatever becomes of the event that they came with. Only differences mean something.
   */
  readonly bytes: number;
  /** When it arrived, by the clock. */
  readonly arrivedAt: number;
  next: EventNode | undefined;
  #whole: WatchEvent | undefined;

  constructor(
    event: WatchEvent | undefined,
    previous: StoredObject | undefined,
    revision: number,
    sequence: number,
    bytes: number,
    arrivedAt: number,
  ) {
    this.event = event;
    this.previous = previous;
    this.revision = revision;
    this.sequence = sequence;
    this.bytes = bytes;
    this.arrivedAt = arrivedAt;
    this.next = undefined;
    this.#whole = undefined;
  }

  /** The event with its `previous`, made once for all who want it. */
  get eventWithPrevious(): WatchEvent | undefined {
    if (this.event === undefined || this.previous === undefined) return this.event;
    this.#whole ??= new WatchEvent(this.event.type, this.event.object, this.previous);
    return this.#whole;
  }
}
