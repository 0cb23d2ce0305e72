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
 * The wish to be told how far the cache has come, for whoever stands on it. There is only one, however
 * often it is made: the answer to the last is an answer to all before.
 */
export class ProgressRequester {
  readonly #deps: ProgressRequesterDeps;
  /** The newest revision that someone wants to be told of. */
  #revision = 0;
  #stopWaiting = (): void => {};

  constructor(deps: ProgressRequesterDeps) {
    this.#deps = deps;
  }

  /**
   * Has every watcher get a bookmark once the cache is where the store is now. Rejects as the store does
   * when it can't say where that is.
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

  /** The cache holds another history: what was wished for does not matter any more. */
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
