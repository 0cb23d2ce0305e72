import type { Clock } from "../../base/clock.ts";
import type { WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import type { StateChange } from "./diff.ts";
import { EventNode } from "./event-node.ts";
import type { OlderEvents } from "./older-events.ts";

/** The bounds of the event window. */
export interface EventWindowBounds {
  /** Events younger than this are kept, in milliseconds, as far as the other bounds allow. */
  readonly ageMs: number;
  /** This many events are kept however old they are, as far as `maxBytes` allows. */
  readonly minEvents: number;
  /** Never more events than this. */
  readonly maxEvents: number;
  /** Never more bytes than this, by weight. */
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
  /** A ring of a power of two; `#first` is the index of the oldest node in the window. */
  #ring: (EventNode | undefined)[] = new Array(16);
  #first = 0;
  #length = 0;
  #floor: EventNode;
  #newest: EventNode;

  /**
   * Begins at `revision`, after which every event will be appended. With `previousWindow`, the newest node of
   * another history, that one leads on to this: who reads it comes to the node that this begins with,
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
   * The node before the window: the last one that fell out, or the one that history began with. Its
   * revision is the smallest that can be resumed from.
   */
  get floor(): EventNode {
    return this.#floor;
  }

  get newest(): EventNode {
    return this.#newest;
  }

  /** Events in the window. */
  get length(): number {
    return this.#length;
  }

  /** The weight of the events in the window, in bytes. */
  get bytes(): number {
    return this.#newest.bytes - this.#floor.bytes;
  }

  /** The age of the oldest event in the window in milliseconds, 0 if there is none. */
  get oldestAgeMs(): number {
    const oldest = this.#floor.next;
    return oldest === undefined ? 0 : this.#clock.now() - oldest.arrivedAt;
  }

  append(event: WatchEvent, previous: StoredObject | undefined, now: number): void {
    const node = appendNode(this.#newest, event, previous, now);
    if (this.#length === this.#ring.length) this.#resize(this.#ring.length * 2);
    this.#ring[(this.#first + this.#length) & (this.#ring.length - 1)] = node;
    this.#length++;
    this.#newest = node;
    this.trim(now);
  }

  /**
   * Puts what came before the window, which begins after `older.newer` still, in front of it, as far as the bounds
   * have room. Returns whether they have room for anything older.
   *
   * All in one step, as readers look in between; but the events are linked already.
   */
  prepend(older: OlderEvents): boolean {
    if (older.newer !== this.#floor) throw new Error("These events end where no window begins.");
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

  /** What there is room for before the window. */
  get room(): { readonly events: number; readonly bytes: number } {
    const { maxEvents, maxBytes } = this.#bounds;
    return {
      events: Math.max(0, maxEvents - this.#length),
      bytes: Math.max(0, maxBytes - this.bytes),
    };
  }

  /**
   * A history that begins at `revision`, for who can't go on from here; who holds a node of this one is led
   * there by `between`, what is known to have happened. Nothing is appended to this one any more.
   */
  succeed(revision: number, between: readonly StateChange[]): EventWindow {
    const now = this.#clock.now();
    let last = this.#newest;
    for (const { event, previous } of between) last = appendNode(last, event, previous, now);
    return new EventWindow(this.#bounds, this.#clock, revision, last);
  }

  /** Lets go of what the bounds no longer keep. */
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
   * The last node at or below `revision`, from which on a reader that has everything up to `revision`
   * continues. Undefined if events after `revision` have fallen out of the window.
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

/** Makes the node that follows `last`. */
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
