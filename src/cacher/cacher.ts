import type { Logger } from "pino";
import type { WatchFanoutError } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { BackfillQueue } from "../reflector/backfill/backfill-queue.ts";
import { Reflector } from "../reflector/reflector.ts";
import type {
  DeleteRequest,
  GetResult,
  ListResult,
  PutRequest,
  Storage,
  WriteResult,
} from "../storage/storage.ts";
import { Snapshots } from "./catch-up/snapshots.ts";
import { ConsistencyChecker } from "./consistency-checker.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "./dispatch/watcher-bounds.ts";
import { CacheReader } from "./freshness/cache-reader.ts";
import { CurrentRevision } from "./freshness/current-revision.ts";
import { Readiness } from "./freshness/readiness.ts";
import { RevisionWaiters } from "./freshness/revision-waiters.ts";
import { UpstreamLimiter } from "./freshness/upstream-limiter.ts";
import { UpstreamReader } from "./freshness/upstream-reader.ts";
import { UpstreamWriter } from "./freshness/upstream-writer.ts";
import { EventIngest } from "./ingest.ts";
import { ListCache } from "./list/list-cache.ts";
import { PageReader } from "./list/page-reader.ts";
import type { CacherOptions } from "./options.ts";
import { cacheInconsistent } from "./request/errors.ts";
import { ObjectAttributes } from "./request/object-attributes.ts";
import type { CacheGetRequest, CacheListRequest, CacheWatchRequest } from "./request/request.ts";
import type { Selection } from "./request/selection.ts";
import { ChunkCache } from "./state/chunk-cache.ts";
import { defaultEventWindowBounds } from "./state/event-window.ts";
import { EventWindowBackfill } from "./state/event-window-backfill.ts";
import { HistoricalSnapshots } from "./state/historical-snapshots.ts";
import { RetainedSnapshots } from "./state/retained-snapshots.ts";
import { WatchCache } from "./state/watch-cache.ts";
import { type CacherStats, watcherStats } from "./stats.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import { ProgressRequester } from "./watch/progress-requester.ts";
import { WatcherRegistry } from "./watch/watcher-registry.ts";

/** How large a chunk of a list is: what one write has to be made anew for. */
const listChunkBounds = { bytes: 64 * 1024, scanned: 10_000 };
/** How many objects are looked at for one piece of an initial state, which is empty if none of them matches. */
const maxScannedPerChunk = 50_000;
/** How much old states that are kept for pages to come may keep alive, in bytes. */
const idleSnapshotBytes = 128 * 1024 * 1024;

/**
 * A Storage around a Storage: reads and watches are served from memory, which one upstream watch keeps
 * up to date, and writes go through.
 */
export class Cacher implements Storage {
  readonly name: string;
  readonly #storage: Storage;
  readonly #logger: Logger;
  readonly #cache: WatchCache;
  readonly #reflector: Reflector;
  readonly #currentRevision: CurrentRevision;
  readonly #waiters: RevisionWaiters;
  readonly #cacheReader: CacheReader;
  readonly #dispatcher: Dispatcher;
  readonly #objectAttributes: ObjectAttributes;
  readonly #consistencyChecker: ConsistencyChecker;
  readonly #readiness: Readiness;
  readonly #progressRequester: ProgressRequester;
  readonly #backfill: EventWindowBackfill;
  readonly #ingest: EventIngest;
  readonly #upstreamWriter: UpstreamWriter;
  readonly #watcherRegistry: WatcherRegistry;
  readonly #chunkCache: ChunkCache;
  readonly #retainedSnapshots: RetainedSnapshots;
  readonly #lists: ListCache;
  readonly #initialLists: ListCache;
  #closed: Promise<void> | undefined;

  constructor(options: CacherOptions) {
    const { storage, clock } = options;
    const eventWindow = { ...defaultEventWindowBounds, ...options.eventWindow };
    this.name = options.name;
    this.#readiness = new Readiness(options.name);
    this.#storage = storage;
    this.#logger = options.logger;
    const bounds = { ...defaultWatcherBounds, ...options.watchers };
    const chunkCache = new ChunkCache();
    this.#chunkCache = chunkCache;
    const scheduler = options.scheduler ?? new TimeSliceScheduler(clock);
    this.#objectAttributes = new ObjectAttributes(options.attributes, options.indexes);
    this.#cache = new WatchCache(eventWindow, clock, this.#objectAttributes);
    this.#retainedSnapshots = new RetainedSnapshots(this.#cache, {
      idleBytes: Math.min(idleSnapshotBytes, bounds.retainedSnapshotBytes),
      bytes: bounds.retainedSnapshotBytes,
    });
    this.#lists = new ListCache(this.#cache, chunkCache, listChunkBounds);
    this.#initialLists = new ListCache(this.#cache, chunkCache, {
      bytes: bounds.batchBytes,
      scanned: maxScannedPerChunk,
    });
    const snapshots = new Snapshots(
      this.#cache,
      clock,
      this.#initialLists,
      this.#retainedSnapshots,
    );
    const upstreamReader = new UpstreamReader({
      name: options.name,
      storage,
      cache: this.#cache,
      limiter: options.upstreamLimiter ?? new UpstreamLimiter(clock),
      scheduler,
      confirmHistory: () => this.#reflector.confirmHistory(),
      historyGeneration: () => this.#reflector.historyGeneration,
    });
    this.#currentRevision = new CurrentRevision(() => upstreamReader.currentRevision(), clock);
    this.#waiters = new RevisionWaiters(clock, () => storage.requestProgress());
    const historicalSnapshots = new HistoricalSnapshots(
      this.#cache,
      clock,
      this.#retainedSnapshots,
    );
    this.#cacheReader = new CacheReader({
      upstreamReader,
      cache: this.#cache,
      currentRevision: this.#currentRevision,
      waiters: this.#waiters,
      pageReader: new PageReader(this.#cache, historicalSnapshots, this.#lists),
      clock,
      scheduler,
    });
    this.#dispatcher = new Dispatcher(this.#cache, clock, bounds);
    const random = options.random ?? Math.random;
    const timeSlices = new TimeSliceScheduler(clock);
    this.#backfill = new EventWindowBackfill({
      name: options.name,
      storage,
      cache: this.#cache,
      clock,
      random,
      logger: options.logger,
      objectAttributes: this.#objectAttributes,
      timeSlices,
      queue: options.backfillQueue ?? new BackfillQueue(),
      revisions: eventWindow.maxEvents,
      confirmHistory: (signal) => this.#reflector.confirmHistory(signal),
    });
    const watcherRegistry = new WatcherRegistry({
      name: options.name,
      storage,
      upstreamReader,
      clock,
      logger: options.logger,
      bounds,
      cache: this.#cache,
      backfill: this.#backfill,
      readiness: this.#readiness,
      cacheReader: this.#cacheReader,
      currentRevision: this.#currentRevision,
      waiters: this.#waiters,
      dispatcher: this.#dispatcher,
      snapshots,
      historicalSnapshots,
      retainedSnapshots: this.#retainedSnapshots,
      chunkCache,
      scheduler,
    });
    this.#watcherRegistry = watcherRegistry;
    this.#progressRequester = new ProgressRequester({
      clock,
      cache: this.#cache,
      currentRevision: this.#currentRevision,
      waiters: this.#waiters,
      dispatcher: this.#dispatcher,
      watchers: watcherRegistry.all,
    });
    this.#ingest = new EventIngest({
      name: options.name,
      clock,
      objectAttributes: this.#objectAttributes,
      timeSlices,
      logger: options.logger,
      cache: this.#cache,
      backfill: this.#backfill,
      readiness: this.#readiness,
      currentRevision: this.#currentRevision,
      waiters: this.#waiters,
      progressRequester: this.#progressRequester,
      dispatcher: this.#dispatcher,
      snapshots,
      historicalSnapshots,
      coalescedBacklogs: watcherRegistry.coalescedBacklogs,
      watchers: watcherRegistry.all,
    });
    this.#reflector = new Reflector({
      storage,
      target: this.#ingest,
      clock,
      logger: options.logger,
      random,
    });
    this.#upstreamWriter = new UpstreamWriter({
      storage,
      cache: this.#cache,
      reflector: this.#reflector,
      clock,
      logger: options.logger,
      name: options.name,
    });
    this.#consistencyChecker = new ConsistencyChecker({
      storage,
      cache: this.#cache,
      clock,
      random,
      logger: options.logger,
      name: options.name,
      intervalMs: options.consistencyIntervalMs ?? 600_000,
      onInconsistency: () => this.#rebuild(),
    });
  }

  /**
   * Begins to list and to watch, for as long as it is open. Harmless when called twice. A fault of
   * ours in there is left unhandled, so that it ends the process: a cache that may be wrong must not go
   * on serving.
   */
  start(): void {
    void this.#reflector.run();
    this.#watcherRegistry.start();
    this.#consistencyChecker.start();
  }

  /** Whether the cache has once been level with the store. Until then reads and watches fail. */
  get ready(): boolean {
    return this.#readiness.ready;
  }

  /** Why nothing comes from the store; undefined while it does. */
  get upstreamFailure(): WatchFanoutError | undefined {
    return this.#reflector.failure;
  }

  onReadyChange(listener: (ready: boolean) => void): void {
    this.#readiness.onChange(listener);
  }

  async get(request: CacheGetRequest): Promise<GetResult> {
    const any = request.at.match === "ANY";
    this.#readiness.check(any);
    const result = await this.#cacheReader.get(request);
    this.#readiness.check(any);
    return result;
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    const any = request.at.match === "ANY";
    this.#readiness.check(any);
    const result = await this.#cacheReader.list(request);
    // What was read from a cache that was found to be wrong meanwhile is not to be told.
    this.#readiness.check(any);
    return result;
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#upstreamWriter.put(request);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#upstreamWriter.delete(request);
  }

  /** The history that the cache's revisions belong to; empty where that can't be known. */
  get currentHistoryId(): string {
    return this.#cache.historyId;
  }

  historyId(signal?: AbortSignal): Promise<string> {
    return this.#storage.historyId(signal);
  }

  renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    return this.#storage.renewHistory(known, signal);
  }

  /**
   * What the selectors pick of this resource's objects, undefined if both are empty. Throws
   * INVALID_REQUEST for what can't be parsed or does not fit the resource.
   */
  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    return this.#objectAttributes.select(labelSelector, fieldSelector);
  }

  currentRevision(signal?: AbortSignal): Promise<number> {
    return this.#storage.currentRevision(signal);
  }

  requestProgress(): void {
    if (!this.ready) return;
    this.#progressRequester.request().catch((error: unknown) => {
      this.#logger.debug({ err: error, resource: this.name }, "could not ask for progress");
    });
  }

  watch(request: CacheWatchRequest): CacheWatcher {
    return this.#watcherRegistry.open(request);
  }

  /**
   * Ends every stream with DRAINING, after a last bookmark where nothing is owed, and refuses new ones.
   * Reads and writes go on.
   */
  drain(): void {
    this.#watcherRegistry.drain();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  stats(): CacherStats {
    const { eventWindow } = this.#cache;
    return {
      ready: this.ready,
      revision: this.#cache.revision,
      upstreamRevision: Math.max(this.#currentRevision.newest, this.#cache.revision),
      upstreamSilenceMs: this.#ingest.silenceMs,
      objects: this.#cache.state.size,
      objectBytes: this.#cache.objectBytes,
      eventWindow: {
        events: eventWindow.length,
        bytes: eventWindow.bytes,
        oldestAgeMs: eventWindow.oldestAgeMs,
        oldestRevision: eventWindow.floor.revision,
      },
      backfill: this.#backfill.stats,
      ...watcherStats(this.#watcherRegistry.all, this.#dispatcher),
      filters: this.#watcherRegistry.filters,
      coalescing: this.#watcherRegistry.coalescedBacklogs.stats(),
      cachedLists: this.#lists.size + this.#initialLists.size,
      chunkCacheBytes: this.#chunkCache.bytes,
      retainedSnapshots: this.#retainedSnapshots.stats(),
      waitingRequests: this.#waiters.size,
      receivedEvents: this.#ingest.receivedEvents,
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#watcherRegistry.slowConsumers,
      reconnects: this.#reflector.reconnects,
      relists: this.#reflector.relists,
      consistencyChecks: this.#consistencyChecker.checks,
      inconsistencies: this.#consistencyChecker.inconsistencies,
      undecodable: this.#objectAttributes.undecodable,
      unknownDeletes: this.#cache.unknownDeletes,
    };
  }

  /** The cache was found to be wrong: nothing is served from it any more until it is filled anew. */
  #rebuild(): void {
    this.#readiness.reset();
    this.#watcherRegistry.fail(cacheInconsistent(this.#cache.revision));
    this.#reflector.relist();
  }

  async #close(): Promise<void> {
    this.drain();
    this.#reflector.stop();
    this.#backfill.stop();
    this.#watcherRegistry.stop();
    this.#consistencyChecker.stop();
    this.#waiters.close();
    this.#readiness.close();
    await this.#storage.close();
  }
}
