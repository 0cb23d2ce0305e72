import type { Clock } from "../../base/clock.ts";
import type { ListCache } from "../list/list-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import { OrderedStore } from "../state/ordered-store.ts";
import { markOf, type RetainedSnapshots } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { StateSnapshot } from "./state-snapshot.ts";

/** For how long a snapshot is shared with those who come later, in milliseconds. */
const sharedForMs = 1_000;
/** For how long those who come gather for the next large one, in milliseconds. */
const gatherMs = 50;
/** For how many filters there is a snapshot to share at the most. */
const maxSnapshots = 16;

/**
 * A state, and where in history it was taken. They are apart, as whoever takes the state piece by piece must
 * not hold the node: all that comes after it would then be kept for as long as that takes.
 */
export interface InitialSnapshot {
  readonly state: StateSnapshot;
  /** The newest event that is part of the state. */
  readonly node: EventNode;
  readonly takenAt: number;
}

/**
 * The states that watches begin with. Those who begin in the same moment with the same filter share one, if
 * nothing has been written meanwhile or they have waited for each other. What is the same in two of them, they
 * share by ListCache.
 */
export class Snapshots {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #lists: ListCache;
  readonly #retained: RetainedSnapshots;
  /** By the filters' identity, the oldest first. */
  readonly #recent = new Map<string, InitialSnapshot>();

  constructor(cache: WatchCache, clock: Clock, lists: ListCache, retained: RetainedSnapshots) {
    this.#cache = cache;
    this.#clock = clock;
    this.#lists = lists;
    this.#retained = retained;
  }

  /**
   * A state through this filter that is at least of `revision`, which the cache has reached. While there
   * is one that is older than that and not of few objects, those who come gather for the next, so that a
   * crowd does not get as many states as there are writes meanwhile.
   */
  async get(filter: Filter, revision: number): Promise<InitialSnapshot> {
    for (;;) {
      const recent = this.#recent.get(filter.identity);
      if (recent === undefined || !this.#isRecent(recent)) return this.#takeNew(filter);
      if (recent.state.revision >= revision) return recent;
      const waitMs = recent.takenAt + gatherMs - this.#clock.now();
      if (waitMs <= 0 || !recent.state.isLarge) return this.#takeNew(filter);
      await new Promise<void>((resolve) => this.#clock.setTimeout(resolve, waitMs));
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
    // However slowly it is taken, a single object keeps nothing else alive.
    const object = this.#cache.state.get(key);
    return OrderedStore.of(object === undefined ? [] : [object]);
  }

  /** Lets go of those that are no longer shared. */
  expire(): void {
    for (const [identity, snapshot] of this.#recent) {
      if (!this.#isRecent(snapshot)) this.#recent.delete(identity);
    }
  }

  #isRecent({ takenAt }: InitialSnapshot): boolean {
    return this.#clock.now() - takenAt <= sharedForMs;
  }

  /** Lets go of all: the cache holds another state. */
  clear(): void {
    this.#recent.clear();
  }
}
