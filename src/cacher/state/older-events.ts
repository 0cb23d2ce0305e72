import type { WatchEvent } from "../../model/event.ts";
import { heldWeight, type StoredObject } from "../../model/object.ts";
import { HistoryNode } from "./event-node.ts";

/**
 * Events from before a history's window, linked from the newest to the oldest, to be put in front of it in one
 * step (`History.prepend`). Until then no reader meets them.
 *
 * Readers may hold the node that the window begins after, and others compare nodes by identity. So that one
 * stays: it becomes the node of the newest of these events, and a new one begins the window.
 */
export class OlderEvents {
  /** The node that the window begins after. */
  readonly newer: HistoryNode;
  readonly #after: number;
  /** The newest first. */
  readonly #nodes: HistoryNode[] = [];
  #newest: { readonly event: WatchEvent; readonly previous: StoredObject | undefined } | undefined;
  #oldest: HistoryNode;
  #sequence: number;
  #bytes: number;

  /** Everything after the revision `after`, up to where `newer` stands. */
  constructor(newer: HistoryNode, after: number) {
    this.newer = newer;
    this.#after = after;
    this.#oldest = newer;
    this.#sequence = newer.sequence;
    this.#bytes = newer.bytes;
  }

  /** The nodes of the events, the newest first. */
  get nodes(): readonly HistoryNode[] {
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
    this.#bytes -= heldWeight(event.object) + (previous === undefined ? 0 : heldWeight(previous));
  }

  /** Links them to what is newer. Returns the node that they begin after. */
  join(): HistoryNode {
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
  ): HistoryNode {
    const { arrivedAt } = this.newer;
    return new HistoryNode(event, previous, revision, this.#sequence, this.#bytes, arrivedAt);
  }
}
