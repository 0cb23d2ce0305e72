import type { WatchFanoutError } from "../base/errors.ts";
import { runInTimeSlices } from "../base/time-slice-queue.ts";
import { Snapshots } from "./catch-up/snapshots.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { WatcherBounds } from "./dispatch/watcher-bounds.ts";
import type { Freshness } from "./freshness/freshness.ts";
import type { Reads } from "./reads.ts";
import { lost } from "./request/errors.ts";
import type { CacheWatchRequest } from "./request/request.ts";
import type { CacheObserver, ComponentContext, Replacement } from "./state/component.ts";
import type { EventWindowBackfill } from "./state/event-window-backfill.ts";
import type { CacherStats } from "./stats.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import { ProgressRequester } from "./watch/progress-requester.ts";
import { WatcherRegistry } from "./watch/watcher-registry.ts";

/** All watches on a Cacher: opens them, dispatches events to them, and ends those that a replacement interrupts. */
export class Watchers implements CacheObserver {
  readonly #context: ComponentContext;
  readonly #freshness: Freshness;
  readonly #dispatcher: Dispatcher;
  readonly #snapshots: Snapshots;
  readonly #registry: WatcherRegistry;
  readonly #progressRequester: ProgressRequester;
  /** The watchers that the replacement in progress has ended or stalled; none outside of one. */
  #interrupted: readonly CacheWatcher[];

  /** A watch that resumes from a part of the event window still missing waits for `backfill`. */
  constructor(
    context: ComponentContext,
    freshness: Freshness,
    reads: Reads,
    backfill: EventWindowBackfill,
    bounds: WatcherBounds,
  ) {
    const { cache, clock } = context;
    const { readiness, upstreamReader, currentRevision, waiters } = freshness;
    const { cacheReader, historicalSnapshots, retainedSnapshots, chunkCache, initialLists } = reads;
    this.#context = context;
    this.#freshness = freshness;
    this.#interrupted = [];
    const dispatcher = new Dispatcher(cache, clock, bounds);
    this.#dispatcher = dispatcher;
    this.#snapshots = new Snapshots(cache, clock, initialLists, retainedSnapshots);
    this.#registry = new WatcherRegistry({
      ...context,
      ...{ readiness, upstreamReader, currentRevision, waiters },
      ...{ cacheReader, historicalSnapshots, retainedSnapshots, chunkCache },
      ...{ dispatcher, snapshots: this.#snapshots, backfill, bounds },
    });
    this.#progressRequester = new ProgressRequester({
      ...{ clock, cache, currentRevision, waiters, dispatcher },
      watchers: this.#registry.all,
    });
  }

  /** Begins the periodic maintenance. Idempotent. */
  start(): void {
    this.#registry.start();
  }

  stop(): void {
    this.#registry.stop();
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
    if (!this.#freshness.readiness.ready) return;
    const { name, logger } = this.#context;
    this.#progressRequester.request().catch((error: unknown) => {
      logger.debug({ err: error, resource: name }, "could not request progress");
    });
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
      coalescing: this.#registry.coalescedBacklogs.stats(),
      dispatchedEvents: this.#dispatcher.dispatchedEvents,
      dispatchedBatches: this.#dispatcher.dispatchedBatches,
      slowConsumers: this.#registry.slowConsumers,
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
      if (changes === undefined || !isLatestState(watcher)) watcher.endSilently(end);
      else watcher.stall(lastKnown);
    }
  }

  reset({ changes }: Replacement): void {
    this.#snapshots.clear();
    this.#dispatcher.reset();
    this.#progressRequester.forget();
    // Without known changes nothing leads from the old state to the new one, so no new watcher may share a backlog.
    if (changes === undefined) this.#registry.coalescedBacklogs.clear();
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
      const bounds = this.#dispatcher.bufferBounds(watcher);
      const fullness = Math.max(
        watcher.buffer.length / bounds.batches,
        watcher.buffer.bytes / bounds.bytes,
      );
      // A buffer exceeds its bounds if these have shrunk, or if it holds a single large batch.
      buffers.fullest = Math.max(buffers.fullest, Math.min(1, fullness));
    }
    return { watchers, buffers };
  }
}

function isLatestState({ options }: CacheWatcher): boolean {
  return options.delivery === "LATEST_STATE";
}

function* notifyEach(watchers: readonly CacheWatcher[]): Generator<void, void, void> {
  for (const watcher of watchers) {
    watcher.notify();
    yield;
  }
}
