import { type Clock, pause } from "../../base/clock.ts";
import type { ListCache } from "../list/list-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import { OrderedStore } from "../state/ordered-store.ts";
import { markOf, type RetainedSnapshots } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { StateSnapshot } from "./state-snapshot.ts";

/** How long a snapshot is shared with watches that are opened later, in milliseconds. */
const sharedForMs = 1_000;
/** How long after a large snapshot watches that need a newer one wait, to share the next, in milliseconds. */
const gatherMs = 50;
/** Maximum number of filters with a shared snapshot. */
const maxSnapshots = 16;

/**
 * A state and its position in the event window. They are separate, since a watcher that takes the state chunk by chunk
 * must not hold the node: that would keep all events after it alive.
 */
interface InitialSnapshot {
  readonly state: StateSnapshot;
  /** The newest event that is part of the state. */
  readonly node: EventNode;
  readonly takenAt: number;
}

/**
 * The states that watches begin with. Watches that are opened at about the same time with the same filter share one, if
 * no write came between or they waited for each other. Different snapshots share equal chunks through the ListCache.
 */
export class Snapshots {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #lists: ListCache;
  readonly #retained: RetainedSnapshots;
  /** By the identity of the filter, the oldest first. */
  readonly #recent = new Map<string, InitialSnapshot>();

  constructor(cache: WatchCache, clock: Clock, lists: ListCache, retained: RetainedSnapshots) {
    this.#cache = cache;
    this.#clock = clock;
    this.#lists = lists;
    this.#retained = retained;
  }

  /**
   * Returns a state of this filter at `revision`, which the cache has reached, or newer. If there is a recent large one
   * that is older, waits until that is `gatherMs` old, so that many watches opened during writes share few states.
   */
  async get(filter: Filter, revision: number): Promise<InitialSnapshot> {
    for (;;) {
      const recent = this.#recent.get(filter.identity);
      if (recent === undefined || !this.#isRecent(recent)) return this.#takeNew(filter);
      if (recent.state.revision >= revision) return recent;
      const waitMs = recent.takenAt + gatherMs - this.#clock.now();
      if (waitMs <= 0 || !recent.state.isLarge) return this.#takeNew(filter);
      await pause(this.#clock, waitMs);
    }
  }

  #takeNew(filter: Filter): InitialSnapshot {
    const cache = this.#cache;
    const { revision } = cache;
    const content = { revision, objects: this.#objectsFor(filter), mark: markOf(cache) };
    const state = new StateSnapshot(content, filter, this.#lists, this.#retained);
    const snapshot = { state, node: cache.eventWindow.newest, takenAt: this.#clock.now() };
    this.#recent.delete(filter.identity);
    this.#recent.set(filter.identity, snapshot);
    for (const identity of this.#recent.keys()) {
      if (this.#recent.size <= maxSnapshots) break;
      this.#recent.delete(identity);
    }
    return snapshot;
  }

  #objectsFor({ key, selection }: Filter): OrderedStore {
    if (key === undefined) return this.#cache.stateFor(selection).snapshot();
    // A copy of the single object: a slow reader then keeps no other object alive.
    const object = this.#cache.state.get(key);
    return OrderedStore.of(object === undefined ? [] : [object]);
  }

  /** Drops snapshots that are no longer shared. */
  expire(): void {
    for (const [identity, snapshot] of this.#recent) {
      if (!this.#isRecent(snapshot)) this.#recent.delete(identity);
    }
  }

  #isRecent({ takenAt }: InitialSnapshot): boolean {
    return this.#clock.now() - takenAt <= sharedForMs;
  }

  /** Drops all snapshots: the cache was filled from a new list. */
  clear(): void {
    this.#recent.clear();
  }
}
