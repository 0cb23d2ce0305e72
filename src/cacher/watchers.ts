import { randomUUID } from "node:crypto";
import { hasReason, WatchFanoutError } from "../base/errors.ts";
import { runInTimeSlices } from "../base/event-loop-turns.ts";
import { LatencySampler } from "../base/latency-sampler.ts";
import { Turns } from "../base/turns.ts";
import { CoalescedBacklogs } from "./catch-up/coalesced-backlogs.ts";
import { Snapshots } from "./catch-up/snapshots.ts";
import { PendingSource, type SourceContext } from "./catch-up/watch-source.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { WatcherBounds } from "./dispatch/watcher-bounds.ts";
import type { Freshness } from "./freshness/freshness.ts";
import type { Reads } from "./reads.ts";
import { draining, lost } from "./request/errors.ts";
import type { CacheWatchRequest, Delivery } from "./request/request.ts";
import type { CacheObserver, ComponentContext, Replacement } from "./state/component.ts";
import type { CacherStats, CacheSummary } from "./stats.ts";
import { CacheWatcher, type WatcherContext, type WatcherOptions } from "./watch/cache-watcher.ts";
import { MaskLimits } from "./watch/mask-limits.ts";
import { SharedFilters } from "./watch/shared-filters.ts";
import { type DeepResume, WatchOpener } from "./watch/watch-opener.ts";
import { WatcherMaintenance } from "./watch/watcher-maintenance.ts";

/** Whether the watchers of a mode remain after a replacement whose changes are known. */
const readsReplacements: Readonly<Record<Delivery, boolean>> = {
  EVERY_EVENT: false,
  LATEST_STATE: true,
};

/**
 * All watches on a Cacher, in one table: opens them, dispatches events to them, and ends those that a replacement
 * interrupts.
 */
export class Watchers implements CacheObserver {
  readonly #context: ComponentContext;
  readonly #dispatcher: Dispatcher;
  readonly #coalescedBacklogs: CoalescedBacklogs;
  readonly #snapshots: Snapshots;
  readonly #maintenance: WatcherMaintenance;
  readonly #opener: WatchOpener;
  readonly #watcherContext: WatcherContext;
  readonly #bookmarkBroadcast: BookmarkBroadcast;
  /** Those that have not ended. */
  readonly #watchers = new Set<CacheWatcher>();
  readonly #filters = new SharedFilters();
  readonly #masks = new MaskLimits();
  /** Of the watch that was opened last, until it ends: those of one Subscribe stream mostly have the same, and share them. */
  #lastOptions: WatcherOptions | undefined;
  #isDraining = false;
  /** Number of watchers that ended with SLOW_CONSUMER. */
  #slowConsumers = 0;
  /** The watchers that the replacement in progress has ended or stalled; none outside of one. */
  #interrupted: readonly CacheWatcher[];
  /** Waits for a revision to be settled. */
  readonly #settling = new Set<() => void>();

  constructor(
    context: ComponentContext,
    freshness: Freshness,
    reads: Reads,
    deepResume: DeepResume,
    bounds: WatcherBounds,
  ) {
    const { cache, clock, stages } = context;
    const { chunkCache, initialLists, retainedSnapshots } = reads;
    const dispatcher = new Dispatcher(cache, clock, bounds, (latencyMs) =>
      stages.dispatched?.(latencyMs),
    );
    const coalescedBacklogs = new CoalescedBacklogs({
      ...{ clock, cache, dispatcher, chunkCache, turns: new Turns(clock, Infinity) },
      ...{ chunkBytes: bounds.batchBytes, maxBytes: bounds.coalescedBytes },
    });
    // Apart from that of the backlogs, so that neither starves the other.
    const turns = new Turns(clock, Infinity);
    const sources: SourceContext = { bounds, cache, dispatcher, coalescedBacklogs, turns };
    const snapshots = new Snapshots(cache, clock, initialLists, retainedSnapshots);
    const expiring = [snapshots, coalescedBacklogs, reads, cache.objectAttributes];
    this.#context = context;
    this.#dispatcher = dispatcher;
    this.#coalescedBacklogs = coalescedBacklogs;
    this.#snapshots = snapshots;
    this.#maintenance = new WatcherMaintenance(context, sources, expiring, this.#watchers);
    this.#opener = new WatchOpener(context, freshness, snapshots, deepResume, sources);
    this.#watcherContext = {
      ...sources,
      deliveryLatency: new LatencySampler(clock, (latencyMs) => stages.delivered?.(latencyMs)),
      forget: (watcher, end) => this.#forget(watcher, end),
      toStreamError: (error) => this.#toStreamError(error),
    };
    this.#bookmarkBroadcast = new BookmarkBroadcast(context, freshness, dispatcher, this.#watchers);
    this.#interrupted = [];
  }

  /** Begins the periodic maintenance. Idempotent. */
  start(): void {
    this.#maintenance.start();
  }

  stop(): void {
    this.#maintenance.stop();
  }

  open(request: CacheWatchRequest): CacheWatcher {
    const filter = this.#filters.acquire(request);
    const source = new PendingSource();
    const options = this.#optionsOf(request);
    const openedAt = this.#context.clock.now();
    const watcher = new CacheWatcher(filter, options, this.#watcherContext, source, openedAt);
    try {
      if (this.#isDraining) throw draining();
      this.#context.readiness.check();
      this.#masks.acquire(request);
    } catch (error) {
      watcher.fail(error);
      return watcher;
    }
    this.#watchers.add(watcher);
    // With the shared selection and view, so that the request does not keep another copy of them.
    const shared = { ...request, selection: filter.selection, view: filter.view };
    this.#opener.begin({ watcher, request: shared, source });
    return watcher;
  }

  /** Ends all watches with `error`. */
  fail(error: WatchFanoutError): void {
    for (const watcher of [...this.#watchers]) watcher.fail(error);
  }

  /** Ends all watches with DRAINING, the synced ones after a last bookmark, and refuses new ones. Idempotent. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    this.#dispatcher.flush();
    for (const watcher of [...this.#watchers]) {
      this.#dispatcher.sendBookmark(watcher);
      watcher.fail(draining());
    }
  }

  /** Requests a bookmark for every watch, once the cache is where the store is now. */
  requestProgress(): void {
    const { name, logger, readiness } = this.#context;
    if (!readiness.ready) return;
    this.#bookmarkBroadcast.request().catch((error: unknown) => {
      logger.debug({ err: error, resource: name }, "could not request progress");
    });
  }

  /** Resolves when every live watcher has been offered all events up to `revision`, or when the cache is replaced. */
  settled(revision: number): Promise<void> {
    return new Promise((resolve) => {
      const settled = (): void => {
        this.#settling.delete(settled);
        resolve();
      };
      this.#settling.add(settled);
      this.#dispatcher.whenSettled(revision, settled);
    });
  }

  /** What was dispatched to the watchers so far. Costs the same for any number of watchers. */
  counters(): Pick<CacheSummary, "dispatchedEvents" | "dispatchedBatches" | "slowConsumers"> {
    return {
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#slowConsumers,
    };
  }

  stats(): Pick<CacherStats, "watchers" | "buffers" | "filters" | "coalescing"> {
    const watchers = { starting: 0, initial: 0, "catching up": 0, live: 0, stalled: 0 };
    const maxBatches = this.#dispatcher.bufferBounds().batches;
    const buffers = { batches: 0, bytes: 0, fullest: 0, maxBatches };
    for (const watcher of this.#watchers) {
      if (watcher.state !== "ended") watchers[watcher.state]++;
      buffers.batches += watcher.buffer.length;
      buffers.bytes += watcher.buffer.bytes;
      buffers.fullest = Math.max(buffers.fullest, watcher.bufferFill);
    }
    const { filters } = this.#filters;
    return { watchers, buffers, filters, coalescing: this.#coalescedBacklogs.stats() };
  }

  /**
   * Ends all watchers. With known changes, those of LATEST_STATE remain: live ones stall and read the changes as one
   * backlog, the others keep their source.
   */
  beforeReplace({ state, cause, changes }: Replacement): void {
    // Live watchers first receive everything known of the old state.
    if (cause === "history lost") this.#dispatcher.flush();
    const lastKnown = this.#dispatcher.position;
    const end = lost(cause, state.revision, state.historyId);
    this.#interrupted = [...this.#watchers];
    for (const watcher of this.#interrupted) {
      const remains = changes !== undefined && readsReplacements[watcher.options.delivery];
      if (remains) watcher.stall(lastKnown);
      else watcher.endSilently(end);
    }
  }

  reset({ changes }: Replacement): void {
    this.#snapshots.clear();
    this.#dispatcher.reset();
    this.#bookmarkBroadcast.forget();
    for (const settled of this.#settling) settled();
    // Without known changes nothing leads from the old state to the new one, so no new watcher may share a backlog.
    if (changes === undefined) this.#coalescedBacklogs.clear();
  }

  advanced(): void {
    this.#dispatcher.wake();
  }

  replaced(): void {
    const watchers = this.#interrupted;
    this.#interrupted = [];
    runInTimeSlices(this.#context.clock, notifyEach(watchers));
  }

  #optionsOf(request: CacheWatchRequest): WatcherOptions {
    const options: WatcherOptions = {
      delivery: request.delivery ?? "EVERY_EVENT",
      bookmarkIntervalMs: request.bookmarkIntervalMs ?? 60_000,
      deadline: request.deadline,
      expiresAt: request.expiresAt,
      eagerBookmarks: request.eagerBookmarks ?? false,
      owner: request.owner,
    };
    const last = this.#lastOptions;
    if (last !== undefined && areEqual(last, options)) return last;
    this.#lastOptions = options;
    return options;
  }

  #forget(watcher: CacheWatcher, end: Error | null): void {
    if (this.#lastOptions === watcher.options) this.#lastOptions = undefined;
    const { filter, options } = watcher;
    // Only those that were opened are counted.
    if (this.#watchers.delete(watcher)) {
      this.#masks.release({ view: filter.view, owner: options.owner });
    }
    this.#dispatcher.leave(watcher);
    this.#filters.release(filter);
    if (hasReason(end, "SLOW_CONSUMER")) this.#slowConsumers++;
  }

  #toStreamError(error: unknown): WatchFanoutError {
    if (error instanceof WatchFanoutError) return error;
    const id = randomUUID();
    const { name, logger } = this.#context;
    logger.error({ err: error, id, resource: name }, "a stream failed");
    return new WatchFanoutError(
      "INTERNAL",
      `An internal error ended this stream. The log of the service has details under id ${id}.`,
      { metadata: { id }, cause: error },
    );
  }
}

function areEqual(one: WatcherOptions, other: WatcherOptions): boolean {
  return (Object.keys(one) as (keyof WatcherOptions)[]).every((name) => one[name] === other[name]);
}

function* notifyEach(watchers: readonly CacheWatcher[]): Generator<void, void, void> {
  for (const watcher of watchers) {
    watcher.notify();
    yield;
  }
}

/**
 * Coalesces progress requests from downstream caches: at most one is pending, since the bookmarks for the latest
 * also serve those before it.
 */
class BookmarkBroadcast {
  readonly #context: ComponentContext;
  readonly #freshness: Freshness;
  readonly #dispatcher: Dispatcher;
  readonly #watchers: ReadonlySet<CacheWatcher>;
  /** The newest revision that was requested; 0 if none was. */
  #revision = 0;
  #stopWaiting = (): void => {};

  constructor(
    context: ComponentContext,
    freshness: Freshness,
    dispatcher: Dispatcher,
    watchers: ReadonlySet<CacheWatcher>,
  ) {
    this.#context = context;
    this.#freshness = freshness;
    this.#dispatcher = dispatcher;
    this.#watchers = watchers;
  }

  /**
   * Sends every watcher a bookmark when the cache has reached the store's current revision. Rejects if the store cannot
   * be asked for that.
   */
  async request(): Promise<void> {
    const { currentRevision, waiters } = this.#freshness;
    const revision = await currentRevision.get();
    if (revision < this.#revision) return;
    this.#stopWaiting();
    this.#revision = revision;
    if (this.#context.cache.revision >= revision) this.#deliver();
    else this.#stopWaiting = waiters.add(revision, () => this.#deliver());
  }

  /** Cancels the pending request, as the cache holds another history. */
  forget(): void {
    this.#stopWaiting();
    this.#revision = 0;
  }

  #deliver(): void {
    const { clock } = this.#context;
    this.#dispatcher.whenSettled(this.#revision, () =>
      runInTimeSlices(clock, this.#bookmarkEach()),
    );
  }

  *#bookmarkEach(): Generator<void, void, void> {
    for (const watcher of this.#watchers) {
      this.#dispatcher.requestBookmark(watcher);
      yield;
    }
  }
}
