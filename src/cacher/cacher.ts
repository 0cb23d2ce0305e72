import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { notReady, revisionTooOld, WatchFanoutError } from "../errors.ts";
import { Reflector, type ReflectorTarget, type ReplaceCause } from "../reflector/reflector.ts";
import { WatchBatch } from "../storage/event.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  PutRequest,
  RevisionRequirement,
  Storage,
  WriteResult,
} from "../storage/storage.ts";
import {
  CacheWatcher,
  defaultWatcherBounds,
  type WatcherBounds,
  type WatcherHost,
} from "./cache-watcher.ts";
import { CachedReads } from "./cached-reads.ts";
import { Dispatcher } from "./dispatcher.ts";
import { Filter } from "./filter.ts";
import { defaultHistoryBounds, type HistoryBounds } from "./history.ts";
import { PagedState, SnapshotState } from "./initial-state.ts";
import { Patrol } from "./patrol.ts";
import type { CacheWatchRequest } from "./request.ts";
import { RevisionWaiters } from "./revision-waiters.ts";
import { SharedRevision } from "./shared-revision.ts";
import type { CacherStats } from "./stats.ts";
import { WatchCache } from "./watch-cache.ts";

export interface CacherOptions {
  /** What is cached. It is the Cacher's from then on, who closes it. */
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The resource's name, for messages. */
  readonly name: string;
  readonly history?: Partial<HistoryBounds> | undefined;
  readonly watchers?: Partial<WatcherBounds> | undefined;
  /** Numbers from 0 up to 1. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * A Storage around a Storage: reads and watches are served from memory, which one upstream watch keeps
 * up to date, and writes go through.
 */
export class Cacher implements Storage {
  readonly name: string;
  readonly #storage: Storage;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #bounds: WatcherBounds;
  readonly #cache: WatchCache;
  readonly #reflector: Reflector;
  readonly #upstream: SharedRevision;
  readonly #waiters: RevisionWaiters;
  readonly #reads: CachedReads;
  readonly #dispatcher: Dispatcher;
  readonly #patrol: Patrol;
  readonly #host: WatcherHost;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #readyListeners: ((ready: boolean) => void)[] = [];
  #ready = false;
  /** The revision that the first state has to come to before it is served. */
  #readyAt = Infinity;
  #draining = false;
  #closed: Promise<void> | undefined;
  #heardAt: number;
  #receivedEvents = 0;
  #slowConsumers = 0;

  constructor(options: CacherOptions) {
    const { storage, clock } = options;
    const history = { ...defaultHistoryBounds, ...options.history };
    this.name = options.name;
    this.#storage = storage;
    this.#clock = clock;
    this.#logger = options.logger;
    this.#bounds = { ...defaultWatcherBounds, ...options.watchers };
    this.#heardAt = clock.now();
    this.#cache = new WatchCache(history, clock);
    this.#upstream = new SharedRevision(() => storage.currentRevision());
    this.#waiters = new RevisionWaiters(clock, () => storage.requestProgress());
    this.#reads = new CachedReads(storage, this.#cache, this.#upstream, this.#waiters);
    this.#dispatcher = new Dispatcher(this.#cache, clock, this.#bounds);
    this.#reflector = new Reflector({
      storage,
      target: this.#target(),
      clock,
      logger: options.logger,
      random: options.random,
      historyRevisions: history.maxEvents,
    });
    this.#patrol = new Patrol(
      {
        watchers: this.#watchers,
        dispatcher: this.#dispatcher,
        bounds: this.#bounds,
        requestProgress: () => storage.requestProgress(),
      },
      clock,
    );
    this.#host = this.#makeHost();
  }

  /**
   * Begins to list and to watch, for as long as it is open. Harmless when called twice. A fault of
   * ours in there is left unhandled, so that it ends the process: a cache that may be wrong must not go
   * on serving.
   */
  start(): void {
    void this.#reflector.run();
  }

  /** Whether the cache has once been level with the store. Until then reads and watches fail. */
  get ready(): boolean {
    return this.#ready;
  }

  onReadyChange(listener: (ready: boolean) => void): void {
    this.#readyListeners.push(listener);
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#checkReady();
    return this.#reads.get(request);
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.#checkReady();
    return this.#reads.list(request);
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#storage.put(request);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#storage.delete(request);
  }

  currentRevision(signal?: AbortSignal): Promise<number> {
    return this.#storage.currentRevision(signal);
  }

  requestProgress(): void {
    this.#bookmarkAll().catch((error: unknown) => {
      this.#logger.debug({ err: error, resource: this.name }, "could not ask for progress");
    });
  }

  watch(request: CacheWatchRequest): CacheWatcher {
    const watcher = new CacheWatcher(
      new Filter(request),
      {
        intervalMs: request.bookmarkIntervalMs ?? 60_000,
        deadline: request.deadline,
        eager: request.eagerBookmarks ?? false,
      },
      this.#host,
      this.#clock.now(),
    );
    if (this.#draining) {
      watcher.fail(draining());
    } else if (!this.#ready) {
      watcher.fail(this.#notReadyYet());
    } else {
      this.#watchers.add(watcher);
      this.#patrol.start();
      const begun =
        request.sendInitialEvents === true
          ? this.#beginWithState(watcher, request)
          : this.#beginAfter(watcher, request.afterRevision);
      begun.catch((error: unknown) => watcher.fail(this.#asFanoutError(error)));
    }
    return watcher;
  }

  /**
   * Ends every stream with DRAINING, after a last bookmark where nothing is owed, and refuses new ones.
   * Reads and writes go on.
   */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#dispatcher.flush();
    const { bookmark } = this.#dispatcher;
    for (const watcher of [...this.#watchers]) {
      if (watcher.position < this.#dispatcher.revision) watcher.bookmark(bookmark);
      watcher.fail(draining());
    }
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  stats(): CacherStats {
    const { history } = this.#cache;
    const watchers = { starting: 0, initial: 0, "catching up": 0, live: 0, stalled: 0 };
    let batches = 0;
    let bytes = 0;
    let fullest = 0;
    const { inputBatches, inputBytes } = this.#bounds;
    for (const watcher of this.#watchers) {
      if (watcher.state !== "ended") watchers[watcher.state]++;
      batches += watcher.inputBatches;
      bytes += watcher.inputBytes;
      const fill = Math.max(watcher.inputBatches / inputBatches, watcher.inputBytes / inputBytes);
      fullest = Math.max(fullest, Math.min(1, fill));
    }
    return {
      ready: this.#ready,
      revision: this.#cache.revision,
      upstreamRevision: Math.max(this.#upstream.newest, this.#cache.revision),
      upstreamSilenceMs: this.#clock.now() - this.#heardAt,
      objects: this.#cache.state.size,
      objectBytes: this.#cache.objectBytes,
      history: {
        events: history.length,
        bytes: history.bytes,
        oldestAgeMs: history.oldestAgeMs,
        oldestRevision: history.floor.revision,
      },
      watchers,
      input: { batches, bytes, fullest },
      waiting: this.#waiters.size,
      receivedEvents: this.#receivedEvents,
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#slowConsumers,
      reconnects: this.#reflector.reconnects,
      relists: this.#reflector.relists,
      unknownDeletes: this.#cache.unknownDeletes,
    };
  }

  /** Sends the answer that a watch begins with, and then all after `after`. */
  async #beginAfter(watcher: CacheWatcher, after: number | undefined): Promise<void> {
    const revision = after ?? (await this.#upstream.current());
    if (after !== undefined) await this.#reads.checkExists(after);
    this.#checkInHistory(revision);
    watcher.open(new WatchBatch(revision, []));
    await this.#follow(watcher, revision);
  }

  /** Sends the state at one revision, and then all after it. */
  async #beginWithState(watcher: CacheWatcher, request: CacheWatchRequest): Promise<void> {
    watcher.open(new WatchBatch(undefined, []));
    const at = newnessOf(request.afterRevision);
    const revision = await this.#reads.reach(at);
    if (revision === undefined) return this.#beginWithStoredState(watcher, at);
    const { filter } = watcher;
    const { history, state } = this.#cache;
    const snapshot = state.snapshot();
    const objects = filter.key === undefined ? snapshot.range(filter.prefix) : [];
    const single = filter.key === undefined ? undefined : snapshot.get(filter.key);
    const { predicate } = filter;
    const all = single === undefined ? objects : [single];
    const matching = predicate === undefined ? all : Iterator.from(all).filter(predicate);
    watcher.beginInitial(new SnapshotState(matching, revision, this.#bounds.batchBytes));
    watcher.follow(history.newest);
  }

  /** The same, from the storage itself: the cache is not new enough, and will be once it is. */
  async #beginWithStoredState(watcher: CacheWatcher, at: RevisionRequirement): Promise<void> {
    const { key, prefix, predicate } = watcher.filter;
    if (key !== undefined) {
      const { revision, object } = await this.#storage.get({ key, at });
      const matching = object === undefined || predicate?.(object) === false ? [] : [object];
      watcher.beginInitial(new SnapshotState(matching, revision, this.#bounds.batchBytes));
      return this.#follow(watcher, revision);
    }
    const list = (where: RevisionRequirement, startAfter?: string): Promise<ListResult> =>
      this.#storage.list({ prefix, startAfter, limit: 500, at: where, predicate });
    const first = await list(at);
    const exactly: RevisionRequirement = { match: "EXACT", revision: first.revision };
    watcher.beginInitial(
      new PagedState(
        first,
        (startAfter) => list(exactly, startAfter),
        (failure) => {
          if (failure === undefined) watcher.poke();
          else watcher.fail(this.#asFanoutError(failure));
        },
      ),
    );
    return this.#follow(watcher, first.revision);
  }

  /** Lets the watcher go on after `revision`, as soon as the cache has got there. */
  async #follow(watcher: CacheWatcher, revision: number): Promise<void> {
    while (this.#cache.revision < revision) {
      if (watcher.state === "ended") return;
      if (!(await this.#waiters.wait(revision))) return;
    }
    const node = this.#cache.history.find(revision);
    if (node === undefined) throw this.#tooOld(revision);
    watcher.follow(node);
  }

  #checkInHistory(revision: number): void {
    if (revision < this.#cache.history.floor.revision) throw this.#tooOld(revision);
  }

  #tooOld(revision: number): WatchFanoutError {
    return revisionTooOld(revision, this.#cache.history.floor.revision);
  }

  async #bookmarkAll(): Promise<void> {
    if (!this.#ready) return;
    const revision = await this.#upstream.current();
    if (this.#cache.revision < revision && !(await this.#waiters.wait(revision))) return;
    this.#dispatcher.flush();
    const { bookmark } = this.#dispatcher;
    for (const watcher of this.#watchers) watcher.requestBookmark(bookmark);
  }

  #target(): ReflectorTarget {
    return {
      replace: (state, cause) => {
        this.#heardAt = this.#clock.now();
        this.#cache.replace(state.objects, state.revision);
        this.#endAll(cause);
        this.#dispatcher.reset();
        if (cause === "start") this.#readyAt = state.current;
        this.#advanced();
        if (!this.#ready) this.#awaitReady();
      },
      apply: (batch) => {
        this.#heardAt = this.#clock.now();
        this.#receivedEvents += batch.events.length;
        this.#cache.apply(batch);
        this.#advanced();
      },
    };
  }

  #advanced(): void {
    const { revision } = this.#cache;
    if (!this.#ready && revision >= this.#readyAt) {
      this.#ready = true;
      this.#logger.info({ resource: this.name, revision }, "the cache is ready");
      for (const listener of this.#readyListeners) listener(true);
    }
    this.#waiters.reached(revision);
    this.#dispatcher.wake();
  }

  /** The rest of history may be of other keys than ours, and then only progress tells. */
  #awaitReady(): void {
    void this.#waiters.wait(this.#readyAt);
  }

  /** No stream can go on after the state has been replaced: what lies between is not known. */
  #endAll(cause: ReplaceCause): void {
    const revision = this.#cache.revision;
    for (const watcher of [...this.#watchers]) watcher.fail(lost(cause, revision));
  }

  #makeHost(): WatcherHost {
    const cache = this.#cache;
    return {
      bounds: this.#bounds,
      dispatcher: this.#dispatcher,
      get history() {
        return cache.history;
      },
      forget: (watcher) => {
        this.#watchers.delete(watcher);
        this.#dispatcher.leave(watcher);
        const end = watcher.ended;
        if (end instanceof WatchFanoutError && end.reason === "SLOW_CONSUMER") {
          this.#slowConsumers++;
        }
      },
      listenerFailed: (_watcher, error) => this.#asFanoutError(error),
    };
  }

  #asFanoutError(error: unknown): WatchFanoutError {
    if (error instanceof WatchFanoutError) return error;
    const id = randomUUID();
    this.#logger.error({ err: error, id, resource: this.name }, "a stream failed");
    return new WatchFanoutError(
      "INTERNAL",
      `A fault of the service ended this stream; its log says more under ${id}.`,
      { metadata: { id }, cause: error },
    );
  }

  #checkReady(): void {
    if (!this.#ready) throw this.#notReadyYet();
  }

  #notReadyYet(): WatchFanoutError {
    return notReady(
      `The cache of ${JSON.stringify(this.name)} has not been filled yet. Try again soon.`,
    );
  }

  async #close(): Promise<void> {
    this.drain();
    this.#reflector.stop();
    this.#patrol.stop();
    this.#waiters.close();
    await this.#storage.close();
  }
}

function newnessOf(afterRevision: number | undefined): RevisionRequirement {
  if (afterRevision === undefined) return { match: "LINEARIZABLE" };
  if (afterRevision === 0) return { match: "ANY" };
  return { match: "NOT_OLDER_THAN", revision: afterRevision };
}

function draining(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "This replica is shutting down. Resume from the last resume point, on another replica.",
  );
}

function lost(cause: ReplaceCause, revision: number): WatchFanoutError {
  if (cause === "history changed") {
    return new WatchFanoutError(
      "HISTORY_CHANGED",
      "The store's history has become another one. List anew and go on from there.",
      { metadata: { history_id: "" } },
    );
  }
  return new WatchFanoutError(
    "HISTORY_LOST",
    `The store no longer had the events that came next; it is at revision ${revision} now. ` +
      "List anew and go on from there.",
    { metadata: { current_revision: String(revision) } },
  );
}
