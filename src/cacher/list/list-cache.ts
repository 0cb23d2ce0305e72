import type { ChunkCache } from "../state/chunk-cache.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CachedList } from "./cached-list.ts";
import type { ChunkBounds } from "./list-chunk.ts";

/**
 * The lists that pages and initial states are put together from. Those who list the same share its chunks, and a
 * write takes away the one that it falls into, not the others: so a list that thousands ask for is made, and
 * encoded, about once.
 *
 * A list is here while chunks of it are kept or made, and no longer. So there are no more of them than ChunkCache
 * has room for, and than there are scans.
 */
export class ListCache {
  readonly #cache: WatchCache;
  readonly #chunkCache: ChunkCache;
  readonly #bounds: ChunkBounds;
  /** By the filters' identity. */
  #lists = new Map<string, CachedList>();
  /** The epoch of the cache that they are of. */
  #epoch: number;

  constructor(cache: WatchCache, chunkCache: ChunkCache, bounds: ChunkBounds) {
    this.#cache = cache;
    this.#chunkCache = chunkCache;
    this.#bounds = bounds;
    this.#epoch = cache.epoch;
  }

  /** How many lists there are. */
  get size(): number {
    return this.#lists.size;
  }

  /** The list of what the filter lets through of the states that the cache has had since it was last filled. */
  open(filter: Filter): CachedList {
    // Revisions of another history mean something else.
    if (this.#epoch !== this.#cache.epoch) this.#lists = new Map();
    this.#epoch = this.#cache.epoch;
    const lists = this.#lists;
    const { identity } = filter;
    return (
      lists.get(identity) ??
      new CachedList(filter, this.#cache, this.#chunkCache, this.#bounds, {
        used: (list) => {
          if (!lists.has(identity)) lists.set(identity, list);
        },
        // Another one may have taken its place, where it was held for long without being used.
        unused: (list) => {
          if (lists.get(identity) === list) lists.delete(identity);
        },
      })
    );
  }
}
