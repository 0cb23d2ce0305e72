import type { ChunkCache } from "../state/chunk-cache.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CachedList } from "./cached-list.ts";
import type { ChunkBounds } from "./list-chunk.ts";

/**
 * The lists that pages and initial states are put together from. Requests for the same list share its chunks, and a
 * write invalidates only the chunk that it falls into: so a list with thousands of readers is made, and encoded,
 * about once.
 *
 * A list is held only while it has chunks or makes one. So the number of lists is bounded by the size of ChunkCache
 * and the number of scans.
 */
export class ListCache {
  readonly #cache: WatchCache;
  readonly #chunkCache: ChunkCache;
  readonly #bounds: ChunkBounds;
  /** By the filters' identity. */
  #lists = new Map<string, CachedList>();
  /** The epoch of the cache in which they were made. */
  #epoch: number;

  constructor(cache: WatchCache, chunkCache: ChunkCache, bounds: ChunkBounds) {
    this.#cache = cache;
    this.#chunkCache = chunkCache;
    this.#bounds = bounds;
    this.#epoch = cache.epoch;
  }

  /** Number of lists with chunks. */
  get size(): number {
    return this.#lists.size;
  }

  /** Returns the list of the objects that pass the filter, at any revision since the cached state was last replaced. */
  open(filter: Filter): CachedList {
    // Revisions of another epoch may belong to another history.
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
        // An unused list that a reader still holds may have been replaced.
        unused: (list) => {
          if (lists.get(identity) === list) lists.delete(identity);
        },
      })
    );
  }
}
