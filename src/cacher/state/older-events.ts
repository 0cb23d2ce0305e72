import type { WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import { EventNode } from "./event-node.ts";

/**
 * Events from before a history's window, linked from the newest to the oldest, to be put in front of it in one
 * step (`EventWindow.prepend`). Until then no reader meets them.
 *
 * Readers may hold the node that the window begins after, and others compare nodes by identity. So that one
 * stays: it becomes the node of the newest of these events, and a new one begins the window.
 */
export class OlderEvents {
  /** The node that the window begins after. */
  readonly newer: EventNode;
  readonly #after: number;
  /** The newest first. */
  readonly #nodes: EventNode[] = [];
  #newest: { readonly event: WatchEvent; readonly previous: StoredObject | undefined } | undefined;
  #oldest: EventNode;
  #sequence: number;
  #bytes: number;

  /** Everything after the revision `after`, up to where `newer` stands. */
  constructor(newer: EventNode, after: number) {
    this.newer = newer;
    this.#after = after;
    this.#oldest = newer;
    this.#sequence = newer.sequence;
    this.#bytes = newer.bytes;
  }

  /** The nodes of the events, the newest first. */
  get nodes(): readonly EventNode[] {
    return this.#nodes;
  }

  /** Takes the event that comes before those so far. */
  add(event: WatchEvent, previous: StoredObject | undefined): void {
    if (this.#newest === undefined) {
      this.#newest = { event, previous };
    } else {
      const node = this.#nodeBefore(event, previous, event.revision);
      node.next = this.#oldest;
      this.#oldest = node;
    }
    this.#nodes.push(this.#oldest);
    this.#sequence--;
    this.#bytes -= memoryBytes(event.object) + (previous === undefined ? 0 : memoryBytes(previous));
  }

  /** Links them to what is newer. Returns the node that they begin after. */
  join(): EventNode {
    const { newer } = this;
    if (this.#newest === undefined) {
      newer.revision = this.#after;
      return newer;
    }
    const floor = this.#nodeBefore(undefined, undefined, this.#after);
    floor.next = this.#oldest;
    const { event, previous } = this.#newest;
    newer.event = event;
    newer.previous = previous;
    newer.revision = event.revision;
    return floor;
  }

  #nodeBefore(
    event: WatchEvent | undefined,
    previous: StoredObject | undefined,
    revision: number,
  ): EventNode {
    const { arrivedAt } = this.newer;
    return new EventNode(event, previous, revision, this.#sequence, this.#bytes, arrivedAt);
  }
}
