import { oneStep, type TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { StoredObject } from "../../model/object.ts";
import type { WatchScope } from "../../storage/storage.ts";
import type { CachedState, CacheStateRequest } from "../request/request.ts";
import type { HistoricalSnapshot, HistoricalSnapshots } from "../state/historical-snapshots.ts";
import {
  markOf,
  type RetainedSnapshot,
  type RetainedSnapshots,
} from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";

/** Reads the objects in a scope, for callers that make a result of them in time slices. */
export class StateReader {
  readonly #cache: WatchCache;
  readonly #historicalSnapshots: HistoricalSnapshots;
  readonly #retained: RetainedSnapshots;

  constructor(
    cache: WatchCache,
    historicalSnapshots: HistoricalSnapshots,
    retained: RetainedSnapshots,
  ) {
    this.#cache = cache;
    this.#historicalSnapshots = historicalSnapshots;
    this.#retained = retained;
  }

  /**
   * Returns what `read` makes of the state; undefined if the cache has not reached the revision, or no longer has its
   * state.
   */
  *read<T>(
    { scope, revision }: CacheStateRequest,
    read: (state: CachedState) => TimeSlicedWork<T>,
  ): TimeSlicedWork<T | undefined> {
    const cache = this.#cache;
    const at = revision ?? cache.revision;
    if (at > cache.revision) return undefined;
    // If nothing has changed since then, the state now is the state at that revision.
    const isCurrent = cache.lastChangeRevision <= at;
    if ("key" in scope) {
      const { key } = scope;
      const found = isCurrent
        ? { object: cache.state.get(key) }
        : yield* this.#historicalSnapshots.objectAt(key, at);
      return found === undefined ? undefined : yield* read(this.#ofObject(at, found.object));
    }
    const past = isCurrent
      ? { state: cache.state.snapshot(), mark: markOf(cache) }
      : yield* this.#historicalSnapshots.at(at);
    return past === undefined ? undefined : yield* read(this.#ofSnapshot(at, scope, past));
  }

  #ofObject(revision: number, object: StoredObject | undefined): CachedState {
    const objects = object === undefined ? [] : [object];
    return {
      ...{ revision, newest: this.#cache.revision, objects, reversed: objects },
      count: () => oneStep(() => objects.length),
      // A single object keeps no other alive.
      retain: () => () => {},
    };
  }

  #ofSnapshot(
    revision: number,
    scope: WatchScope,
    { state, mark }: HistoricalSnapshot,
  ): CachedState {
    return {
      ...{ revision, newest: this.#cache.revision },
      objects: { [Symbol.iterator]: () => state.objectsIn(scope)[Symbol.iterator]() },
      reversed: {
        [Symbol.iterator]: () => state.objectsIn(scope, undefined, true)[Symbol.iterator](),
      },
      count: () => state.countIn(scope),
      retain: (onEvict) => {
        const retained: RetainedSnapshot = {
          ...{ mark, isIdle: false },
          evict: () => {
            this.#retained.delete(retained);
            onEvict();
          },
        };
        this.#retained.add(retained);
        return () => this.#retained.delete(retained);
      },
    };
  }
}
