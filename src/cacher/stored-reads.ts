import { hasReason } from "../errors.ts";
import type {
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  Storage,
} from "../storage/storage.ts";
import { otherHistoryYet } from "./stream-errors.ts";
import type { WatchCache } from "./watch-cache.ts";

/**
 * Reads that the store itself has to answer, with answers that are certain to be of the history that the
 * cache holds. While nothing comes from the store, it may have been put back to an older state, of which its
 * answers say nothing: whoever read on from them would mix two histories.
 */
export class StoredReads implements Pick<Storage, "get" | "list" | "currentRevision"> {
  readonly #storage: Storage;
  readonly #cache: WatchCache;
  readonly #confirmHistory: () => Promise<void>;

  /** `confirmHistory` rejects with HISTORY_CHANGED if the store's history is not the cache's. */
  constructor(storage: Storage, cache: WatchCache, confirmHistory: () => Promise<void>) {
    this.#storage = storage;
    this.#cache = cache;
    this.#confirmHistory = confirmHistory;
  }

  get(request: GetRequest): Promise<GetResult> {
    return this.#ask(this.#storage.get(request));
  }

  list(request: ListRequest): Promise<ListResult> {
    return this.#ask(this.#storage.list(request));
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    const { history, revision } = this.#cache;
    const current = await this.#ask(this.#storage.currentRevision(signal));
    // In one history it is never lower than what has come from it.
    if (current < revision && this.#cache.history === history) throw otherHistoryYet();
    return current;
  }

  /** Rejects with UPSTREAM_UNAVAILABLE if the answer may be of another history. */
  async #ask<T>(asked: Promise<T>): Promise<T> {
    const answer = await asked;
    try {
      await this.#confirmHistory();
    } catch (error) {
      throw hasReason(error, "HISTORY_CHANGED") ? otherHistoryYet(error) : error;
    }
    return answer;
  }
}
