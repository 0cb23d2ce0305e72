import type { WatchEvent } from "../../model/event.ts";
import { isRawKey } from "../../model/key-bytes.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import { EventNode } from "./event-node.ts";

/**
 * Events from before the event window, linked from the newest to the oldest. `EventWindow.prepend` puts them before the
 * window in one step; until then no reader sees them.
 *
 * Readers may hold the node that the window begins after, and nodes are compared by identity. So this node is reused:
 * it becomes the node of the newest of these events, and the window begins after a new one.
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

  /** For all events after the revision `after`, up to the node `newer`. */
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

  /** Adds the event before those added so far. */
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

  /** Links the events to the newer ones. Returns the node that they begin after. */
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
    newer.isRaw = isRawKey(event.object.key);
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
