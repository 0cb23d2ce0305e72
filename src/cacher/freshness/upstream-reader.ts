import { hasReason } from "../../base/errors.ts";
import type { GetResult, ListResult, Storage } from "../../storage/storage.ts";
import { historyChangePending } from "../request/errors.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { LimitedUpstreamReader, type LimitedUpstreamReaderDeps } from "./limited-reader.ts";

export interface UpstreamReaderDeps
  extends Pick<LimitedUpstreamReaderDeps, "name" | "limiter" | "scheduler"> {
  readonly storage: Storage;
  readonly cache: WatchCache;
  /** Rejects with HISTORY_CHANGED if the store's history is not the cache's. */
  readonly confirmHistory: () => Promise<void>;
  /** Counts the histories that the cache has held. */
  readonly historyGeneration: () => number;
}

/**
 * Reads that the store itself has to answer, with answers that are certain to be of the history that the
 * cache holds. While nothing comes from the store, it may have been put back to an older state, of which its
 * answers say nothing: whoever read on from them would mix two histories. How many go to it at once is bounded.
 */
export class UpstreamReader implements Pick<Storage, "get" | "list" | "currentRevision"> {
  readonly #deps: UpstreamReaderDeps;
  readonly #reads: LimitedUpstreamReader;

  constructor(deps: UpstreamReaderDeps) {
    this.#deps = deps;
    this.#reads = new LimitedUpstreamReader({
      ...deps,
      check: (answer) => this.#confirmed(answer),
    });
  }

  /** `since`: when the call came, by the clock, if that was before now. */
  get(request: CacheGetRequest, since?: number): Promise<GetResult> {
    return this.#reads.get(request, since);
  }

  /** As `get`. */
  list(request: CacheListRequest, since?: number): Promise<ListResult> {
    return this.#reads.list(request, since);
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    const { cache, storage } = this.#deps;
    const { eventWindow, revision } = cache;
    const current = await this.#confirmed(storage.currentRevision(signal));
    // In one history it is never lower than what has come from it.
    if (current < revision && cache.eventWindow === eventWindow) throw historyChangePending();
    return current;
  }

  /**
   * Rejects with UPSTREAM_UNAVAILABLE if the answer may be of another history. That the cache's is the store's now says
   * nothing of an answer, or a part of one, that came before the cache took that history in.
   */
  async #confirmed<T>(asked: Promise<T>): Promise<T> {
    const { confirmHistory, historyGeneration } = this.#deps;
    const generation = historyGeneration();
    const answer = await asked;
    try {
      await confirmHistory();
    } catch (error) {
      throw hasReason(error, "HISTORY_CHANGED") ? historyChangePending(error) : error;
    }
    if (generation !== historyGeneration()) throw historyChangePending();
    return answer;
  }
}
