import { invalidRequest } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
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
  Reached,
  ReadRequest,
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

  /** See `Cacher.reach`. */
  async reach(request: ReadRequest): Promise<Reached> {
    const isState = "scope" in request;
    this.#context.readiness.check(!isState && request.at.match === "ANY");
    if ("key" in request) checkGet(request);
    else if (!isState) checkCacheList(request);
    return this.#reachCache(request);
  }

  async get(request: CacheGetRequest, reached: Reached): Promise<GetResult> {
    const result = await this.#fromCache(request, reached, () =>
      this.#begin(request, this.#pageReader.get(request)),
    );
    return result ?? this.#freshness.upstreamReader.get(request, reached.since);
  }

  async list(request: CacheListRequest, reached: Reached): Promise<ListResult> {
    const { scheduler } = this.#context;
    const { signal, owner = request } = request;
    const result = await this.#fromCache(request, reached, () =>
      scheduler.run(owner, this.#pageReader.list(request), signal),
    );
    return result ?? this.#freshness.upstreamReader.list(request, reached.since);
  }

  /** See `Cacher.readState`. */
  async readState<T>(
    request: CacheStateRequest,
    reached: Reached,
    read: (state: CachedState) => TimeSlicedWork<T>,
  ): Promise<T | "late" | undefined> {
    let isReached = false;
    const result = await this.#fromCache(request, reached, () => {
      isReached = true;
      return this.#begin(request, this.#stateReader.read(request, read));
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
   * Returns the result of `read`; undefined if only the store can serve the request. Waits for the cache again, and repeats
   * the read, if the cache has been replaced since it was `reached`: the result may belong to another history.
   */
  async #fromCache<T>(
    request: ReadRequest,
    reached: Reached,
    read: () => T | undefined | Promise<T | undefined>,
  ): Promise<T | undefined> {
    let at = reached;
    for (;;) {
      if (at.isLate) return undefined;
      const result = await read();
      if (at.epoch === this.#context.cache.epoch) return result;
      at = await this.#reachCache(request);
    }
  }

  /** Does work whose first step is all of it for most requests: they look one object up, and need not wait behind scans. */
  #begin<T>(request: ReadRequest, work: TimeSlicedWork<T>): T | Promise<T> {
    const { signal, owner = request } = request;
    const { done, value } = work.next();
    return done === true ? value : this.#context.scheduler.run(owner, work, signal);
  }

  async #reachCache(request: ReadRequest): Promise<Reached> {
    const { cache, clock } = this.#context;
    const since = clock.now();
    const { epoch } = cache;
    if (this.#isBeyond(request)) return { isLate: true, epoch, since };
    const revision = await this.#freshness.reach(request.at, request.signal);
    return { isLate: revision === undefined, epoch, since };
  }

  /**
   * Whether the request continues a list that the store began, since the cache was not new enough then, and still
   * is not. Another wait would not help, and a failure would break off the list midway.
   */
  #isBeyond(request: ReadRequest): boolean {
    const { at } = request;
    if (!("startAfter" in request) || request.startAfter === undefined) return false;
    return at.match === "EXACT" && at.revision > this.#context.cache.revision;
  }
}

/** Throws INVALID_REQUEST for a list that no Cacher can serve. */
function checkCacheList(request: CacheListRequest): void {
  checkList(request);
  if (request.keysOnly !== true || request.predicate === undefined) return;
  throw invalidRequest(
    "keysOnly",
    "A list by content needs the content: ask for keys only, or for what a predicate picks.",
  );
}
