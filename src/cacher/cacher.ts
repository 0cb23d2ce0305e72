import type { WatchFanoutError } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { Turns } from "../base/turns.ts";
import type { StoredObject } from "../model/object.ts";
import { BackfillQueue } from "../reflector/backfill/window-backfill.ts";
import type {
  DeleteRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListResult,
  PutRequest,
  Storage,
  WriteResult,
} from "../storage/storage.ts";
import type { StoreWrite } from "../storage/store.ts";
import { DeepReads } from "./catch-up/deep-reads.ts";
import { ConsistencyChecker } from "./consistency-checker.ts";
import { defaultWatcherBounds } from "./dispatch/watcher-bounds.ts";
import { Freshness } from "./freshness/freshness.ts";
import { UpstreamLimiter } from "./freshness/upstream-limiter.ts";
import { UpstreamWriter } from "./freshness/upstream-writer.ts";
import { EventIngest } from "./ingest.ts";
import type { CacherOptions } from "./options.ts";
import { Reads } from "./reads.ts";
import { cacheInconsistent } from "./request/errors.ts";
import { ObjectAttributes, type Projected } from "./request/object-attributes.ts";
import type { Projection } from "./request/projection.ts";
import type {
  CachedState,
  CacheGetRequest,
  CacheListRequest,
  CacheStateRequest,
  CacheWatchRequest,
  Reached,
  ReadRequest,
} from "./request/request.ts";
import type { Selection } from "./request/selection.ts";
import type { ComponentContext } from "./state/component.ts";
import { defaultEventWindowBounds } from "./state/event-window.ts";
import { Readiness } from "./state/readiness.ts";
import { WatchCache } from "./state/watch-cache.ts";
import type { CacherStats, CacheSummary } from "./stats.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import { Watchers } from "./watchers.ts";

const defaultConsistencyIntervalMs = 10 * 60_000;

/**
 * A Storage around a Storage: serves reads and watches from memory, which one upstream watch keeps up to date, and
 * passes writes through.
 *
 * It consists of four components, each of which uses only those before it: the ingest writes into the watch cache,
 * freshness says how new the cache is, reads are served from it, and watchers follow it.
 */
export class Cacher implements Storage {
  /** The resource's name. */
  readonly name: string;
  readonly #storage: Storage;
  readonly #source: Storage;
  readonly #cache: WatchCache;
  readonly #readiness: Readiness;
  readonly #ingest: EventIngest;
  readonly #freshness: Freshness;
  readonly #reads: Reads;
  readonly #watchers: Watchers;
  readonly #upstreamWriter: UpstreamWriter;
  readonly #consistencyChecker: ConsistencyChecker;
  #closed: Promise<void> | undefined;

  constructor(options: CacherOptions) {
    const { name, storage, clock, logger, random = Math.random } = options;
    const eventWindowBounds = { ...defaultEventWindowBounds, ...options.eventWindow };
    const watcherBounds = { ...defaultWatcherBounds, ...options.watchers };
    const scheduler = options.scheduler ?? new Turns(clock);
    const limiter = options.upstreamLimiter ?? new UpstreamLimiter(clock);
    const backfillQueue = options.backfillQueue ?? new BackfillQueue();
    const attributes = new ObjectAttributes(options.attributes, options.indexes);
    const cache = new WatchCache(eventWindowBounds, clock, attributes);
    const readiness = new Readiness(name);
    const source = (options.rawKeys === true && storage.withRawKeys?.()) || storage;
    const context: ComponentContext = {
      ...{ name, storage, source, cache, readiness },
      ...{ clock, logger, scheduler, random },
      stages: options.stages ?? {},
    };
    const { maxEvents } = eventWindowBounds;
    const { keeper, timeOfDay = Date.now } = options;
    const onFailure = (error: WatchFanoutError): void => {
      // The right to the state was lost.
      if (options.mayNotServeAfter?.(error) === true) this.#discard(error);
    };
    const keeping = keeper && { keeper, timeOfDay };
    const ingest = new EventIngest(context, backfillQueue, maxEvents, onFailure, keeping);
    const freshness = new Freshness(context, limiter, ingest.reflector);
    const reads = new Reads(context, freshness, {
      initialChunkBytes: watcherBounds.batchBytes,
      retainedSnapshotBytes: watcherBounds.retainedSnapshotBytes,
    });
    const deepReads = options.deepReads ?? new DeepReads(clock);
    const { backfill, reflector: history } = ingest;
    const deepResume = { deepReads, history, backfill };
    this.#watchers = new Watchers(context, freshness, reads, deepResume, watcherBounds);
    this.#upstreamWriter = new UpstreamWriter(context, ingest.reflector);
    this.#consistencyChecker = new ConsistencyChecker(
      context,
      ingest.reflector,
      options.consistencyIntervalMs ?? defaultConsistencyIntervalMs,
      () => this.#discard(cacheInconsistent(this.#cache.revision)),
    );
    this.name = name;
    this.#storage = storage;
    this.#source = source;
    this.#cache = cache;
    this.#readiness = readiness;
    this.#ingest = ingest;
    this.#freshness = freshness;
    this.#reads = reads;
  }

  /** Lists and watches the storage until `close`. Idempotent. */
  start(): void {
    this.#ingest.start([this.#freshness, this.#reads, this.#watchers]);
    this.#watchers.start();
    this.#consistencyChecker.start();
  }

  /** Whether the cache has been synced with the store once. Until then reads and watches fail with NOT_READY. */
  get ready(): boolean {
    return this.#readiness.ready;
  }

  /** Why the last attempt to list or watch the store failed; undefined while the watch delivers. */
  get upstreamFailure(): WatchFanoutError | undefined {
    return this.#ingest.reflector.failure;
  }

  /** The revision that the cache has; 0 before it is ready. */
  get revision(): number {
    return this.ready ? this.#cache.revision : 0;
  }

  /** A watch may resume from this revision or a later one; infinite before the cache is ready. */
  get oldestRevision(): number {
    return this.ready ? this.#cache.eventWindow.floor.revision : Infinity;
  }

  /**
   * How old the cache may be, in milliseconds, while the store, or the source that the store itself follows, can't be
   * reached; undefined otherwise.
   */
  get staleForMs(): number | undefined {
    const { staleForMs } = this.#source;
    if (this.upstreamFailure === undefined) return staleForMs;
    return Math.max(this.#ingest.silenceMs, staleForMs ?? 0);
  }

  /** Calls `listener` whenever `ready` changes. */
  onReadyChange(listener: (ready: boolean) => void): void {
    this.#readiness.onChange(listener);
  }

  /**
   * Waits until the cache is as new as a read requires, for up to 3 s. Pass the result to the read. For callers that have
   * to wait for something else between the two, such as room for the response, which must not be held while the cache
   * catches up. Rejects as the read would.
   */
  reach(request: ReadRequest): Promise<Reached> {
    return this.#reads.reach(request);
  }

  async get(request: CacheGetRequest, reached?: Reached): Promise<GetResult> {
    const result = await this.#reads.get(request, reached ?? (await this.reach(request)));
    this.#readiness.check(request.at.match === "ANY");
    return result;
  }

  async list(request: CacheListRequest, reached?: Reached): Promise<ListResult> {
    const result = await this.#reads.list(request, reached ?? (await this.reach(request)));
    // The cache may have been found inconsistent during the read: then its result must not be returned.
    this.#readiness.check(request.at.match === "ANY");
    return result;
  }

  /**
   * Reads a page of the history of one key from the store, which has more of it than the cache. Rejects with INVALID_REQUEST
   * if the storage has no histories.
   */
  async history(request: HistoryRequest): Promise<HistoryResult> {
    request.signal?.throwIfAborted();
    this.#readiness.check();
    const result = await this.#freshness.upstreamReader.history(request);
    this.#readiness.check();
    return result;
  }

  /** The size of the value that the cache has for a key, in bytes; undefined: there is no such object. */
  valueBytes(key: string): number | undefined {
    return this.#cache.state.get(key)?.value.length;
  }

  /**
   * Waits until the cache is as new as the request says, and resolves to what `read` makes of a state, in time slices.
   * Resolves to "late" if the cache was not new enough in time, and to undefined if it does not have that state. Rejects as
   * `list` does.
   *
   * @internal
   */
  async readState<T>(
    request: CacheStateRequest,
    read: (state: CachedState) => TimeSlicedWork<T>,
    reached?: Reached,
  ): Promise<T | "late" | undefined> {
    const result = await this.#reads.readState(
      request,
      reached ?? (await this.reach(request)),
      read,
    );
    this.#readiness.check();
    return result;
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#upstreamWriter.put(request);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#upstreamWriter.delete(request);
  }

  /** See `ServedResource.historyOfWrite`. */
  historyOfWrite<T extends StoreWrite>(
    writing: Promise<T>,
    written: (result: T) => StoredObject | undefined,
    signal: AbortSignal,
  ): Promise<string> {
    return this.#upstreamWriter.historyOfWrite(writing, written, signal);
  }

  /**
   * Number of histories of the store that the cache has had, the current one included; 0 before the first list. It counts a
   * restore of the store also where histories have no id.
   *
   * @internal
   */
  get historyGeneration(): number {
    return this.#ingest.reflector.historyGeneration;
  }

  /** The id of the history that the cache's revisions belong to; empty if it is not known. */
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
   * Returns the selection of this resource's objects by both selectors, or undefined if both are empty. Throws
   * INVALID_REQUEST for a selector that can't be parsed or does not fit the resource.
   */
  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    return this.#cache.objectAttributes.select(labelSelector, fieldSelector);
  }

  /**
   * Returns what of this resource's objects is delivered with a view of the values. Throws INVALID_REQUEST if its codec has
   * no such view.
   */
  project(projected: Projected): Projection {
    return this.#cache.objectAttributes.project(projected);
  }

  /** Whether objects have labels and fields, and views of their values. */
  get hasAttributes(): boolean {
    return this.#cache.objectAttributes.hasAttributes;
  }

  /** The fields that selectors may name, and those of them that objects are indexed by. */
  get fields(): { readonly declared: readonly string[]; readonly indexed: readonly string[] } {
    const { declaredFields: declared, indexes: indexed } = this.#cache.objectAttributes;
    return { declared, indexed };
  }

  currentRevision(signal?: AbortSignal, historyId?: string): Promise<number> {
    return this.#storage.currentRevision(signal, historyId);
  }

  requestProgress(): void {
    this.#watchers.requestProgress();
  }

  /**
   * Waits until the cache has the store's current revision, for up to 3 s, and every live watch has been offered all events
   * up to it. Calls that wait at the same time share the question for the revision. Resolves to the revision, or to
   * undefined if it was not reached in time. Rejects with the store's error if its revision can't be read.
   */
  async reachCurrentRevision(signal?: AbortSignal): Promise<number | undefined> {
    const revision = await this.#freshness.reach({ match: "LINEARIZABLE" }, signal);
    if (revision !== undefined) await this.#watchers.settled(revision);
    return revision;
  }

  /**
   * As `reachCurrentRevision`, without a question: waits for a revision that the store is known to have had, for up to 3 s, or
   * `timeoutMs`. Resolves to whether it was reached in time.
   */
  async reachKnownRevision(revision: number, timeoutMs?: number): Promise<boolean> {
    const isReached = await this.#freshness.reachKnown(revision, undefined, timeoutMs);
    if (isReached) await this.#watchers.settled(revision);
    return isReached;
  }

  watch(request: CacheWatchRequest): CacheWatcher {
    return this.#watchers.open(request);
  }

  /**
   * Ends every stream with DRAINING, after a last bookmark for each that is synced, and refuses new ones.
   * Reads and writes continue.
   */
  drain(): void {
    this.#watchers.drain();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /**
   * The numbers that cost the same for any number of watchers.
   *
   * @internal
   */
  summary(): CacheSummary {
    const { revision, eventWindow, state } = this.#cache;
    return {
      ...{ ready: this.ready, revision, objects: state.size },
      upstreamRevision: Math.max(this.#freshness.currentRevision.newest, revision),
      ...this.#ingest.stats(),
      eventWindow: {
        events: eventWindow.length,
        bytes: eventWindow.bytes,
        oldestRevision: eventWindow.floor.revision,
        newestRevision: eventWindow.newest.revision,
      },
      ...this.#watchers.counters(),
    };
  }

  stats(): CacherStats {
    const { eventWindow, objectBytes, objectAttributes, unknownDeletes } = this.#cache;
    const { checks, inconsistencies } = this.#consistencyChecker;
    const summary = this.summary();
    return {
      ...summary,
      staleForMs: this.staleForMs ?? 0,
      eventWindow: { ...summary.eventWindow, oldestAgeMs: eventWindow.oldestAgeMs },
      backfill: this.#ingest.backfill.stats,
      ...this.#reads.stats(),
      ...this.#watchers.stats(),
      waitingRequests: this.#freshness.waiters.size,
      ...{ objectBytes, consistencyChecks: checks, inconsistencies, unknownDeletes },
      undecodable: objectAttributes.undecodable,
    };
  }

  /** Serves nothing from the cache until it is listed again. */
  #discard(error: WatchFanoutError): void {
    this.#readiness.reset();
    this.#watchers.fail(error);
    this.#ingest.discard();
  }

  async #close(): Promise<void> {
    this.drain();
    this.#ingest.stop();
    this.#watchers.stop();
    this.#consistencyChecker.stop();
    this.#freshness.close();
    await this.#ingest.close();
    await this.#source.close();
    await this.#storage.close();
  }
}
