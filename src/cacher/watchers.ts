import type { WatchFanoutError } from "../base/errors.ts";
import { runInTimeSlices } from "../base/event-loop-turns.ts";
import { Turns } from "../base/turns.ts";
import { CoalescedBacklogs } from "./catch-up/coalesced-backlogs.ts";
import { Snapshots } from "./catch-up/snapshots.ts";
import type { SourceContext } from "./catch-up/watch-source.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { WatcherBounds } from "./dispatch/watcher-bounds.ts";
import type { Freshness } from "./freshness/freshness.ts";
import type { Reads } from "./reads.ts";
import { lost } from "./request/errors.ts";
import type { CacheWatchRequest, Delivery } from "./request/request.ts";
import type { CacheObserver, ComponentContext, Replacement } from "./state/component.ts";
import type { EventWindowBackfill } from "./state/event-window-backfill.ts";
import type { CacherStats } from "./stats.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import { WatchOpener } from "./watch/watch-opener.ts";
import { WatcherMaintenance } from "./watch/watcher-maintenance.ts";
import { WatcherRegistry } from "./watch/watcher-registry.ts";

/** Whether the watchers of a mode remain after a replacement whose changes are known. */
const readsReplacements: Readonly<Record<Delivery, boolean>> = {
  EVERY_EVENT: false,
  LATEST_STATE: true,
};

/** All watches on a Cacher: opens them, dispatches events to them, and ends those that a replacement interrupts. */
export class Watchers implements CacheObserver {
  readonly #context: ComponentContext;
  readonly #dispatcher: Dispatcher;
  readonly #coalescedBacklogs: CoalescedBacklogs;
  readonly #snapshots: Snapshots;
  readonly #maintenance: WatcherMaintenance;
  readonly #registry: WatcherRegistry;
  readonly #bookmarkBroadcast: BookmarkBroadcast;
  /** The watchers that the replacement in progress has ended or stalled; none outside of one. */
  #interrupted: readonly CacheWatcher[];
  /** Waits for a revision to be settled. */
  readonly #settling = new Set<() => void>();

  /** A watch that resumes from a part of the event window still missing waits for `backfill`. */
  constructor(
    context: ComponentContext,
    freshness: Freshness,
    reads: Reads,
    backfill: EventWindowBackfill,
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
    const opener = new WatchOpener(context, freshness, snapshots, backfill, sources);
    const expiring = [snapshots, coalescedBacklogs, reads];
    const registry = new WatcherRegistry(context, sources, opener);
    const maintenance = new WatcherMaintenance(context, sources, expiring, registry.all);
    this.#context = context;
    this.#dispatcher = dispatcher;
    this.#coalescedBacklogs = coalescedBacklogs;
    this.#snapshots = snapshots;
    this.#maintenance = maintenance;
    this.#registry = registry;
    this.#bookmarkBroadcast = new BookmarkBroadcast(context, freshness, dispatcher, registry.all);
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
    return this.#registry.open(request);
  }

  /** Ends all watches with `error`. */
  fail(error: WatchFanoutError): void {
    this.#registry.fail(error);
  }

  /** Ends all watches with DRAINING, after a last bookmark for each that is synced, and refuses new ones. */
  drain(): void {
    this.#registry.drain();
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
  counters(): Pick<CacherStats, "dispatchedEvents" | "dispatchedBatches" | "slowConsumers"> {
    return {
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#registry.slowConsumers,
    };
  }

  stats(): Pick<
    CacherStats,
    | "watchers"
    | "buffers"
    | "filters"
    | "coalescing"
    | "dispatchedEvents"
    | "dispatchedBatches"
    | "slowConsumers"
  > {
    return {
      ...this.#watcherStats(),
      filters: this.#registry.filters,
      coalescing: this.#coalescedBacklogs.stats(),
      ...this.counters(),
    };
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
    this.#interrupted = [...this.#registry.all];
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

  #watcherStats(): Pick<CacherStats, "watchers" | "buffers"> {
    const watchers = { starting: 0, initial: 0, "catching up": 0, live: 0, stalled: 0 };
    const maxBatches = this.#dispatcher.bufferBounds().batches;
    const buffers = { batches: 0, bytes: 0, fullest: 0, maxBatches };
    for (const watcher of this.#registry.all) {
      if (watcher.state !== "ended") watchers[watcher.state]++;
      buffers.batches += watcher.buffer.length;
      buffers.bytes += watcher.buffer.bytes;
      buffers.fullest = Math.max(buffers.fullest, watcher.bufferFill);
    }
    return { watchers, buffers };
  }
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
