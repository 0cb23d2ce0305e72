import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { CurrentRevision } from "../freshness/current-revision.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

export interface ProgressRequesterDeps {
  readonly clock: Clock;
  readonly cache: WatchCache;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly dispatcher: Dispatcher;
  readonly watchers: ReadonlySet<CacheWatcher>;
}

/**
 * Coalesces progress requests from downstream caches: at most one is pending, since the answer to the latest also
 * answers those before it.
 */
export class ProgressRequester {
  readonly #deps: ProgressRequesterDeps;
  /** The newest revision that was requested; 0 if none was. */
  #revision = 0;
  #stopWaiting = (): void => {};

  constructor(deps: ProgressRequesterDeps) {
    this.#deps = deps;
  }

  /**
   * Sends every watcher a bookmark when the cache has reached the store's current revision. Rejects if the store cannot
   * be asked for that.
   */
  async request(): Promise<void> {
    const { cache, currentRevision, waiters } = this.#deps;
    const revision = await currentRevision.get();
    if (revision < this.#revision) return;
    this.#stopWaiting();
    this.#revision = revision;
    if (cache.revision >= revision) this.#deliver();
    else this.#stopWaiting = waiters.add(revision, () => this.#deliver());
  }

  /** Cancels the pending request, as the cache holds another history. */
  forget(): void {
    this.#stopWaiting();
    this.#revision = 0;
  }

  #deliver(): void {
    const { clock, dispatcher } = this.#deps;
    dispatcher.whenSettled(this.#revision, () => runInTimeSlices(clock, this.#bookmarkEach()));
  }

  *#bookmarkEach(): Generator<void, void, void> {
    const { dispatcher, watchers } = this.#deps;
    for (const watcher of watchers) {
      dispatcher.requestBookmark(watcher);
      yield;
    }
  }
}
