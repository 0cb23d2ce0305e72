import type { TimeSlicedWork } from "../base/time-slices.ts";
import { checkGet, checkList } from "../storage/checks.ts";
import type { GetResult, ListResult } from "../storage/storage.ts";
import type { Freshness } from "./freshness/freshness.ts";
import { ListCache } from "./list/list-cache.ts";
import { PageReader } from "./list/page-reader.ts";
import { StateReader } from "./list/state-reader.ts";
import type {
  CachedState,
  CacheGetRequest,
  CacheListRequest,
  CacheStateRequest,
} from "./request/request.ts";
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

interface ReadsOptions {
  /** Approximate size of a chunk of an initial state, in bytes. */
  readonly initialChunkBytes: number;
  /** Maximum memory that all retained snapshots keep alive, in bytes. */
  readonly retainedSnapshotBytes: number;
}

/**
 * Serves reads from the cache, or from the store where the cache can't: by the list cache, its chunks, and the
 * snapshots of older revisions. Initial states of watches are put together from the same chunks.
 */
export class Reads implements CacheObserver {
  readonly retainedSnapshots: RetainedSnapshots;
  readonly chunkCache = new ChunkCache();
  /** The lists that initial states are put together from. */
  readonly initialLists: ListCache;
  readonly #context: ComponentContext;
  readonly #freshness: Freshness;
  readonly #historicalSnapshots: HistoricalSnapshots;
  readonly #lists: ListCache;
  readonly #pageReader: PageReader;
  readonly #stateReader: StateReader;

  constructor(context: ComponentContext, freshness: Freshness, options: ReadsOptions) {
    const { cache, clock } = context;
    const { initialChunkBytes, retainedSnapshotBytes } = options;
    this.#context = context;
    this.#freshness = freshness;
    this.retainedSnapshots = new RetainedSnapshots(cache, {
      idleBytes: Math.min(idleSnapshotBytes, retainedSnapshotBytes),
      bytes: retainedSnapshotBytes,
    });
    this.#historicalSnapshots = new HistoricalSnapshots(cache, clock, this.retainedSnapshots);
    this.#lists = new ListCache(cache, this.chunkCache, listChunkBounds);
    this.initialLists = new ListCache(cache, this.chunkCache, {
      bytes: initialChunkBytes,
      scanned: maxScannedPerChunk,
    });
    this.#stateReader = new StateReader(cache, this.#historicalSnapshots, this.retainedSnapshots);
    this.#pageReader = new PageReader(cache, this.#historicalSnapshots, this.#lists);
  }

  async get(request: CacheGetRequest): Promise<GetResult> {
    checkGet(request);
    const { scheduler, clock, cache } = this.#context;
    const since = clock.now();
    const { key, signal, owner = request } = request;
    const read = () => {
      const work = this.#pageReader.get(request);
      // Most gets are one lookup in the state, and need not wait behind scans.
      const { done, value } = work.next();
      return done === true ? value : scheduler.run(owner, work, signal);
    };
    const valueBytes = () => cache.state.get(key)?.value.length;
    const result = await this.#fromCache(request, read, valueBytes);
    return result ?? this.#freshness.upstreamReader.get(request, since);
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    checkList(request);
    const { scheduler, clock } = this.#context;
    const { upstreamReader } = this.#freshness;
    const since = clock.now();
    const { signal, owner = request } = request;
    if (this.#isBeyond(request)) {
      const wait = request.admit?.();
      if (wait !== undefined) await wait;
      return upstreamReader.list(request);
    }
    const result = await this.#fromCache(request, () =>
      scheduler.run(owner, this.#pageReader.list(request), signal),
    );
    return result ?? upstreamReader.list(request, since);
  }

  /** See `Cacher.readState`. */
  async readState<T>(
    request: CacheStateRequest,
    read: (state: CachedState) => TimeSlicedWork<T>,
  ): Promise<T | "late" | undefined> {
    const { scheduler } = this.#context;
    const { signal, owner = request } = request;
    let isReached = false;
    const result = await this.#fromCache(request, () => {
      isReached = true;
      const work = this.#stateReader.read(request, read);
      // Most are of one object, and need not wait behind scans.
      const { done, value } = work.next();
      return done === true ? value : scheduler.run(owner, work, signal);
    });
    return result ?? (isReached ? undefined : "late");
  }

  reset(): void {
    this.#historicalSnapshots.clear();
  }

  /** Drops what is no longer shared, and bounds what is retained. */
  expire(): void {
    this.chunkCache.expire();
    this.#historicalSnapshots.expire();
    this.retainedSnapshots.enforceLimits();
  }

  stats(): Pick<CacherStats, "cachedLists" | "chunkCacheBytes" | "retainedSnapshots"> {
    return {
      cachedLists: this.#lists.size + this.initialLists.size,
      chunkCacheBytes: this.chunkCache.bytes,
      retainedSnapshots: this.retainedSnapshots.stats(),
    };
  }

  /**
   * Waits until the cache is new enough, then returns the result of `read`; undefined if only the store can serve the
   * request. Repeats both if the cache is replaced meanwhile, since the result may belong to another history. `valueBytes`:
   * the size of the value that will probably be read, for `admit`.
   */
  async #fromCache<T>(
    request: CacheGetRequest | CacheListRequest | CacheStateRequest,
    read: () => T | undefined | Promise<T | undefined>,
    valueBytes?: () => number | undefined,
  ): Promise<T | undefined> {
    const { cache } = this.#context;
    const { at, signal } = request;
    let { admit } = request;
    for (;;) {
      const { epoch } = cache;
      const reached = await this.#freshness.reach(at, signal);
      const wait = admit?.(valueBytes?.());
      admit = undefined;
      if (wait !== undefined) await wait;
      if (reached === undefined) return undefined;
      const result = await read();
      if (epoch === cache.epoch) return result;
    }
  }

  /**
   * Whether the request continues a list that the store began, since the cache was not new enough then, and still
   * is not. Another wait would not help, and a failure would break off the list midway.
   */
  #isBeyond({ at, startAfter }: CacheListRequest): boolean {
    if (startAfter === undefined || at.match !== "EXACT") return false;
    return at.revision > this.#context.cache.revision;
  }
}
