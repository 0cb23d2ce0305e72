import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { Freshness } from "../freshness/freshness.ts";
import type { ComponentContext } from "../state/component.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/**
 * Coalesces progress requests from downstream caches: at most one is pending, since the bookmarks for the latest
 * also serve those before it.
 */
export class BookmarkBroadcast {
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
