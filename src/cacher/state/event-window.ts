import type { Clock } from "../../base/clock.ts";
import type { WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import type { StateChange } from "./diff.ts";
import { EventNode } from "./event-node.ts";
import type { OlderEvents } from "./older-events.ts";

/** The bounds of the event window. */
export interface EventWindowBounds {
  /** Events younger than this are kept, within the other bounds; in milliseconds. */
  readonly ageMs: number;
  /** This many events are kept regardless of their age, within `maxBytes`. */
  readonly minEvents: number;
  /** Maximum number of events. */
  readonly maxEvents: number;
  /** Maximum memory of the events, in bytes. */
  readonly maxBytes: number;
}

export const defaultEventWindowBounds: EventWindowBounds = {
  ageMs: 5 * 60_000,
  minEvents: 1_000,
  maxEvents: 100_000,
  maxBytes: 64 * 1024 * 1024,
};

/**
 * The recent events of a resource: a ring buffer of linked nodes that grows and shrinks with the age of
 * its oldest event, between bounds.
 */
export class EventWindow {
  readonly #bounds: EventWindowBounds;
  readonly #clock: Clock;
  /** A ring whose size is a power of two; `#first` is the index of the oldest node in the window. */
  #ring: (EventNode | undefined)[] = new Array(16);
  #first = 0;
  #length = 0;
  #floor: EventNode;
  #newest: EventNode;

  /**
   * Begins at `revision`; all later events are appended. With `previousWindow`, the newest node of another window, the
   * new window is linked after it: a reader of the old one continues with the node that this window begins with,
   * which has no event.
   */
  constructor(
    bounds: EventWindowBounds,
    clock: Clock,
    revision: number,
    previousWindow?: EventNode,
  ) {
    this.#bounds = bounds;
    this.#clock = clock;
    const { sequence, bytes } = previousWindow ?? { sequence: -1, bytes: 0 };
    const now = clock.now();
    this.#floor = new EventNode(undefined, undefined, revision, sequence + 1, bytes, now);
    this.#newest = this.#floor;
    if (previousWindow !== undefined) previousWindow.next = this.#floor;
  }

  /**
   * The node before the window: the last one that was dropped, or the one that the window began with. Its revision is
   * the smallest that a watch can be resumed from.
   */
  get floor(): EventNode {
    return this.#floor;
  }

  get newest(): EventNode {
    return this.#newest;
  }

  /**
   * The node in the middle of the window; that before it, if it is empty. A reader that continues after it has half of the
   * window left before its next events are dropped.
   */
  get middle(): EventNode {
    return this.#length === 0 ? this.#floor : this.#at(this.#length >>> 1);
  }

  /** Number of events in the window. */
  get length(): number {
    return this.#length;
  }

  /** Memory of the events in the window, in bytes. */
  get bytes(): number {
    return this.#newest.bytes - this.#floor.bytes;
  }

  /** Age of the oldest event in the window, in milliseconds; 0 if the window is empty. */
  get oldestAgeMs(): number {
    const oldest = this.#floor.next;
    return oldest === undefined ? 0 : this.#clock.now() - oldest.arrivedAt;
  }

  /** Appends the next event, and drops the oldest ones beyond the bounds. `arrivedAt`: in the clock's milliseconds. */
  append(event: WatchEvent, previous: StoredObject | undefined, arrivedAt: number): void {
    const node = appendNode(this.#newest, event, previous, arrivedAt);
    if (this.#length === this.#ring.length) this.#resize(this.#ring.length * 2);
    this.#ring[(this.#first + this.#length) & (this.#ring.length - 1)] = node;
    this.#length++;
    this.#newest = node;
    this.trim(arrivedAt);
  }

  /**
   * Puts older events before the window, within its bounds. The window must still begin after `older.newer`; otherwise
   * this throws. Returns whether there is room for still older events.
   *
   * It is one synchronous step, so that readers see all of them or none; the events are linked already.
   */
  prepend(older: OlderEvents): boolean {
    if (older.newer !== this.#floor)
      throw new Error("The window does not begin where these events end.");
    const { nodes } = older;
    while (this.#length + nodes.length > this.#ring.length) this.#resize(this.#ring.length * 2);
    const floor = older.join();
    for (const node of nodes) {
      this.#first = (this.#first - 1) & (this.#ring.length - 1);
      this.#ring[this.#first] = node;
    }
    this.#length += nodes.length;
    this.#floor = floor;
    this.trim(this.#clock.now());
    return this.#floor === floor;
  }

  /** The remaining room for older events. */
  get room(): { readonly events: number; readonly bytes: number } {
    const { maxEvents, maxBytes } = this.#bounds;
    return {
      events: Math.max(0, maxEvents - this.#length),
      bytes: Math.max(0, maxBytes - this.bytes),
    };
  }

  /**
   * Returns a window that begins at `revision`, for new readers. Readers that hold a node of this window reach the new
   * one through the events in `between`. No event must be appended to this window any more.
   */
  succeed(revision: number, between: readonly StateChange[]): EventWindow {
    const now = this.#clock.now();
    let last = this.#newest;
    for (const { event, previous } of between) last = appendNode(last, event, previous, now);
    return new EventWindow(this.#bounds, this.#clock, revision, last);
  }

  /** Drops the oldest events beyond the bounds. `now`: in the clock's milliseconds. */
  trim(now: number): void {
    const { ageMs, minEvents, maxEvents, maxBytes } = this.#bounds;
    while (this.#length > 0) {
      const oldest = this.#floor.next;
      if (oldest === undefined) break;
      const expired = this.#length > minEvents && now - oldest.arrivedAt > ageMs;
      if (this.#length <= maxEvents && this.bytes <= maxBytes && !expired) break;
      this.#ring[this.#first] = undefined;
      this.#first = (this.#first + 1) & (this.#ring.length - 1);
      this.#length--;
      this.#floor = oldest;
    }
    if (this.#ring.length > 16 && this.#length < this.#ring.length / 4) {
      this.#resize(this.#ring.length / 2);
    }
  }

  /** Whether everything after `node` is still in the window. */
  covers(node: EventNode): boolean {
    return node.sequence >= this.#floor.sequence;
  }

  /**
   * Returns the last node at or below `revision`, after which a reader continues that has everything up to `revision`;
   * undefined if events after `revision` have been dropped from the window.
   */
  find(revision: number): EventNode | undefined {
    if (revision < this.#floor.revision) return undefined;
    let low = 0;
    let high = this.#length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#at(middle).revision <= revision) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? this.#floor : this.#at(low - 1);
  }

  #at(index: number): EventNode {
    return this.#ring[(this.#first + index) & (this.#ring.length - 1)] as EventNode;
  }

  #resize(size: number): void {
    const ring = new Array<EventNode | undefined>(size);
    for (let i = 0; i < this.#length; i++) ring[i] = this.#at(i);
    this.#ring = ring;
    this.#first = 0;
  }
}

/** Makes the node that follows `last`, and links it. */
function appendNode(
  last: EventNode,
  event: WatchEvent,
  previous: StoredObject | undefined,
  now: number,
): EventNode {
  const before = previous === undefined ? 0 : memoryBytes(previous);
  const bytes = last.bytes + event.estimatedBytes + before;
  const node = new EventNode(event, previous, event.revision, last.sequence + 1, bytes, now);
  last.next = node;
  return node;
}
