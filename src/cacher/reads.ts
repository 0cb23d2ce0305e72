import { CacheReader } from "./freshness/cache-reader.ts";
import type { Freshness } from "./freshness/freshness.ts";
import { ListCache } from "./list/list-cache.ts";
import { PageReader } from "./list/page-reader.ts";
import { ChunkCache } from "./state/chunk-cache.ts";
import type { CacheObserver, ComponentContext } from "./state/component.ts";
import { HistoricalSnapshots } from "./state/historical-snapshots.ts";
import { RetainedSnapshots } from "./state/retained-snapshots.ts";
import type { CacherStats } from "./stats.ts";

/** Size of a chunk of a list, which is what one write invalidates. */
const listChunkBounds = { bytes: 64 * 1024, scanned: 10_000 };
/** Maximum number of objects examined for one chunk of an initial state, which is empty if none of them matches. */
const maxScannedPerChunk = 50_000;
/** Maximum memory that snapshots retained for future pages keep alive, in bytes. */
const idleSnapshotBytes = 128 * 1024 * 1024;

export interface ReadsOptions {
  /** Approximate size of a chunk of an initial state, in bytes. */
  readonly initialChunkBytes: number;
  /** Maximum memory that all retained snapshots keep alive, in bytes. */
  readonly retainedSnapshotBytes: number;
}

/**
 * Answers reads from the cache, or from the store where the cache can't: the list cache, its chunks, and the
 * snapshots of older revisions. Initial states of watches are put together from the same chunks.
 */
export class Reads implements CacheObserver {
  readonly cacheReader: CacheReader;
  readonly historicalSnapshots: HistoricalSnapshots;
  readonly retainedSnapshots: RetainedSnapshots;
  readonly chunkCache = new ChunkCache();
  /** The lists that initial states are put together from. */
  readonly initialLists: ListCache;
  readonly #lists: ListCache;

  constructor(context: ComponentContext, freshness: Freshness, options: ReadsOptions) {
    const { cache, clock } = context;
    const { initialChunkBytes, retainedSnapshotBytes } = options;
    this.retainedSnapshots = new RetainedSnapshots(cache, {
      idleBytes: Math.min(idleSnapshotBytes, retainedSnapshotBytes),
      bytes: retainedSnapshotBytes,
    });
    this.historicalSnapshots = new HistoricalSnapshots(cache, clock, this.retainedSnapshots);
    this.#lists = new ListCache(cache, this.chunkCache, listChunkBounds);
    this.initialLists = new ListCache(cache, this.chunkCache, {
      bytes: initialChunkBytes,
      scanned: maxScannedPerChunk,
    });
    const pageReader = new PageReader(cache, this.historicalSnapshots, this.#lists);
    this.cacheReader = new CacheReader(context, freshness, pageReader);
  }

  reset(): void {
    this.historicalSnapshots.clear();
  }

  stats(): Pick<CacherStats, "cachedLists" | "chunkCacheBytes" | "retainedSnapshots"> {
    return {
      cachedLists: this.#lists.size + this.initialLists.size,
      chunkCacheBytes: this.chunkCache.bytes,
      retainedSnapshots: this.retainedSnapshots.stats(),
    };
  }
}
