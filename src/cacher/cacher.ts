import type { Logger } from "pino";
import type { WatchFanoutError } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { FillTurns } from "../reflector/backfill/backfill-queue.ts";
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
import { ConsistencyCheck } from "./consistency-checker.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "./dispatch/watcher-bounds.ts";
import { CachedReads } from "./freshness/cache-reader.ts";
import { SharedRevision } from "./freshness/current-revision.ts";
import { Readiness } from "./freshness/readiness.ts";
import { RevisionWaiters } from "./freshness/revision-waiters.ts";
import { UpstreamLimiter } from "./freshness/upstream-limiter.ts";
import { StoredReads } from "./freshness/upstream-reader.ts";
import { StoredWrites } from "./freshness/upstream-writer.ts";
import { Intake } from "./ingest.ts";
import { ListCache } from "./list/list-cache.ts";
import { PageReads } from "./list/page-reader.ts";
import type { CacherOptions } from "./options.ts";
import { cacheWrong } from "./request/errors.ts";
import { Attribution } from "./request/object-attributes.ts";
import type { CacheGetRequest, CacheListRequest, CacheWatchRequest } from "./request/request.ts";
import type { Selection } from "./request/selection.ts";
import { KeptPieces } from "./state/chunk-cache.ts";
import { defaultHistoryBounds } from "./state/event-window.ts";
import { EventWindow } from "./state/event-window-backfill.ts";
import { PastStates } from "./state/historical-snapshots.ts";
import { RetainedStates } from "./state/retained-snapshots.ts";
import { WatchCache } from "./state/watch-cache.ts";
import { type CacherStats, watcherStats } from "./stats.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import { ProgressWish } from "./watch/progress-requester.ts";
import { Watches } from "./watch/watcher-registry.ts";

/** How large a chunk of a list is: what one write has to be made anew for. */
const listChunkBounds = { bytes: 64 * 1024, scanned: 10_000 };
/** How many objects are looked at for one piece of an initial state, which is empty if none of them matches. */
const maxScannedPerPiece = 50_000;
/** How much old states that are kept for pages to come may keep alive, in bytes. */
const spareStateBytes = 128 * 1024 * 1024;

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
  readonly #upstream: SharedRevision;
  readonly #waiters: RevisionWaiters;
  readonly #reads: CachedReads;
  readonly #dispatcher: Dispatcher;
  readonly #attribution: Attribution;
  readonly #consistency: ConsistencyCheck;
  readonly #readiness: Readiness;
  readonly #progressWish: ProgressWish;
  readonly #window: EventWindow;
  readonly #intake: Intake;
  readonly #writes: StoredWrites;
  readonly #watches: Watches;
  readonly #kept: KeptPieces;
  readonly #retained: RetainedStates;
  readonly #lists: ListCache;
  readonly #initialLists: ListCache;
  #closed: Promise<void> | undefined;

  constructor(options: CacherOptions) {
    const { storage, clock } = options;
    const history = { ...defaultHistoryBounds, ...options.history };
    this.name = options.name;
    this.#readiness = new Readiness(options.name);
    this.#storage = storage;
    this.#logger = options.logger;
    const bounds = { ...defaultWatcherBounds, ...options.watchers };
    const kept = new KeptPieces();
    this.#kept = kept;
    const scheduler = options.scheduler ?? new TimeSliceScheduler(clock);
    this.#attribution = new Attribution(options.attributes, options.indexes);
    this.#cache = new WatchCache(history, clock, this.#attribution);
    this.#retained = new RetainedStates(this.#cache, {
      spareBytes: Math.min(spareStateBytes, bounds.retainedBytes),
      bytes: bounds.retainedBytes,
    });
    this.#lists = new ListCache(this.#cache, kept, listChunkBounds);
    this.#initialLists = new ListCache(this.#cache, kept, {
      bytes: bounds.batchBytes,
      scanned: maxScannedPerPiece,
    });
    const snapshots = new Snapshots(this.#cache, clock, this.#initialLists, this.#retained);
    const stored = new StoredReads({
      name: options.name,
      storage,
      cache: this.#cache,
      limiter: options.upstreamLimiter ?? new UpstreamLimiter(clock),
      scheduler,
      confirmHistory: () => this.#reflector.confirmHistory(),
      eras: () => this.#reflector.eras,
    });
    this.#upstream = new SharedRevision(() => stored.currentRevision(), clock);
    this.#waiters = new RevisionWaiters(clock, () => storage.requestProgress());
    const pastStates = new PastStates(this.#cache, clock, this.#retained);
    this.#reads = new CachedReads({
      stored,
      cache: this.#cache,
      upstream: this.#upstream,
      waiters: this.#waiters,
      pages: new PageReads(this.#cache, pastStates, this.#lists),
      clock,
      scheduler,
    });
    this.#dispatcher = new Dispatcher(this.#cache, clock, bounds);
    const random = options.random ?? Math.random;
    const slices = new TimeSliceScheduler(clock);
    this.#window = new EventWindow({
      name: options.name,
      storage,
      cache: this.#cache,
      clock,
      random,
      logger: options.logger,
      attribution: this.#attribution,
      slices,
      turns: options.fillTurns ?? new FillTurns(),
      revisions: history.maxEvents,
      confirmHistory: (signal) => this.#reflector.confirmHistory(signal),
    });
    const watches = new Watches({
      name: options.name,
      storage,
      stored,
      clock,
      logger: options.logger,
      bounds,
      cache: this.#cache,
      window: this.#window,
      readiness: this.#readiness,
      reads: this.#reads,
      upstream: this.#upstream,
      waiters: this.#waiters,
      dispatcher: this.#dispatcher,
      snapshots,
      pastStates,
      retained: this.#retained,
      kept,
      scheduler,
    });
    this.#watches = watches;
    this.#progressWish = new ProgressWish({
      clock,
      cache: this.#cache,
      upstream: this.#upstream,
      waiters: this.#waiters,
      dispatcher: this.#dispatcher,
      watchers: watches.all,
    });
    this.#intake = new Intake({
      name: options.name,
      clock,
      attribution: this.#attribution,
      slices,
      logger: options.logger,
      cache: this.#cache,
      window: this.#window,
      readiness: this.#readiness,
      upstream: this.#upstream,
      waiters: this.#waiters,
      progressWish: this.#progressWish,
      dispatcher: this.#dispatcher,
      snapshots,
      pastStates,
      folds: watches.folds,
      watchers: watches.all,
    });
    this.#reflector = new Reflector({
      storage,
      target: this.#intake,
      clock,
      logger: options.logger,
      random,
    });
    this.#writes = new StoredWrites({
      storage,
      cache: this.#cache,
      history: this.#reflector,
      clock,
      logger: options.logger,
      name: options.name,
    });
    this.#consistency = new ConsistencyCheck({
      storage,
      cache: this.#cache,
      clock,
      random,
      logger: options.logger,
      name: options.name,
      intervalMs: options.consistencyIntervalMs ?? 600_000,
      onDifference: () => this.#rebuild(),
    });
  }

  /**
   * Begins to list and to watch, for as long as it is open. Harmless when called twice. A fault of
   * ours in there is left unhandled, so that it ends the process: a cache that may be wrong must not go
   * on serving.
   */
  start(): void {
    void this.#reflector.run();
    this.#watches.start();
    this.#consistency.start();
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
    const result = await this.#reads.get(request);
    this.#readiness.check(any);
    return result;
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    const any = request.at.match === "ANY";
    this.#readiness.check(any);
    const result = await this.#reads.list(request);
    // What was read from a cache that was found to be wrong meanwhile is not to be told.
    this.#readiness.check(any);
    return result;
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#writes.put(request);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#writes.delete(request);
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
    return this.#attribution.select(labelSelector, fieldSelector);
  }

  currentRevision(signal?: AbortSignal): Promise<number> {
    return this.#storage.currentRevision(signal);
  }

  requestProgress(): void {
    if (!this.ready) return;
    this.#progressWish.make().catch((error: unknown) => {
      this.#logger.debug({ err: error, resource: this.name }, "could not ask for progress");
    });
  }

  watch(request: CacheWatchRequest): CacheWatcher {
    return this.#watches.open(request);
  }

  /**
   * Ends every stream with DRAINING, after a last bookmark where nothing is owed, and refuses new ones.
   * Reads and writes go on.
   */
  drain(): void {
    this.#watches.drain();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  stats(): CacherStats {
    const { history } = this.#cache;
    return {
      ready: this.ready,
      revision: this.#cache.revision,
      upstreamRevision: Math.max(this.#upstream.newest, this.#cache.revision),
      upstreamSilenceMs: this.#intake.silenceMs,
      objects: this.#cache.state.size,
      objectBytes: this.#cache.objectBytes,
      history: {
        events: history.length,
        bytes: history.bytes,
        oldestAgeMs: history.oldestAgeMs,
        oldestRevision: history.floor.revision,
      },
      windowFill: this.#window.stats,
      ...watcherStats(this.#watches.all, this.#dispatcher),
      filters: this.#watches.filters,
      folds: this.#watches.folds.stats(),
      lists: this.#lists.size + this.#initialLists.size,
      pieceBytes: this.#kept.bytes,
      retained: this.#retained.stats(),
      waiting: this.#waiters.size,
      receivedEvents: this.#intake.receivedEvents,
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#watches.slowConsumers,
      reconnects: this.#reflector.reconnects,
      relists: this.#reflector.relists,
      consistencyChecks: this.#consistency.checks,
      inconsistencies: this.#consistency.differences,
      undecodable: this.#attribution.undecodable,
      unknownDeletes: this.#cache.unknownDeletes,
    };
  }

  /** The cache was found to be wrong: nothing is served from it any more until it is filled anew. */
  #rebuild(): void {
    this.#readiness.lose();
    this.#watches.fail(cacheWrong(this.#cache.revision));
    this.#reflector.relist();
  }

  async #close(): Promise<void> {
    this.drain();
    this.#reflector.stop();
    this.#window.stop();
    this.#watches.stop();
    this.#consistency.stop();
    this.#waiters.close();
    this.#readiness.close();
    await this.#storage.close();
  }
}
