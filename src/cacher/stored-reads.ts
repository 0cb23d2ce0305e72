import { hasReason, upstreamUnavailable, type WatchFanoutError } from "../errors.ts";
import type { GetResult, ListResult, Storage } from "../storage/storage.ts";
import type { CacheGetRequest, CacheListRequest } from "./request.ts";
import { isTimeless, objectName, pageName, type UpstreamLimiter } from "./upstream-limiter.ts";
import type { WatchCache } from "./watch-cache.ts";

export interface StoredReadsParts {
  /** The resource's. */
  readonly name: string;
  readonly storage: Storage;
  readonly cache: WatchCache;
  readonly limiter: UpstreamLimiter;
  /** Rejects with HISTORY_CHANGED if the store's history is not the cache's. */
  readonly confirmHistory: () => Promise<void>;
}

/**
 * Reads that the store itself has to answer, with answers that are certain to be of the history that the
 * cache holds. While nothing comes from the store, it may have been put back to an older state, of which its
 * answers say nothing: whoever read on from them would mix two histories. How many go to it at once is bounded.
 */
export class StoredReads implements Pick<Storage, "get" | "list" | "currentRevision"> {
  readonly #parts: StoredReadsParts;

  constructor(parts: StoredReadsParts) {
    this.#parts = parts;
  }

  /** `since`: when the call came, by the clock, if that was before now. */
  get({ owner, signal, ...request }: CacheGetRequest, since?: number): Promise<GetResult> {
    const { name, storage, limiter } = this.#parts;
    const question = {
      name: objectName(name, request),
      isTimeless: isTimeless(request.at),
      since,
      ask: (wanted: AbortSignal) => this.#ask(storage.get({ ...request, signal: wanted })),
    };
    return limiter.run(owner ?? request, question, signal);
  }

  /** As `get`. */
  list(
    { owner, signal, selection, ...request }: CacheListRequest,
    since?: number,
  ): Promise<ListResult> {
    const { name, storage, limiter } = this.#parts;
    const predicate = selection?.predicate ?? request.predicate;
    const question = {
      name: pageName(name, { ...request, selection }),
      isTimeless: isTimeless(request.at),
      since,
      ask: (wanted: AbortSignal) =>
        this.#ask(storage.list({ ...request, predicate, signal: wanted })),
    };
    return limiter.run(owner ?? request, question, signal);
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    const { cache, storage } = this.#parts;
    const { history, revision } = cache;
    const current = await this.#ask(storage.currentRevision(signal));
    // In one history it is never lower than what has come from it.
    if (current < revision && cache.history === history) throw otherHistoryYet();
    return current;
  }

  /** Rejects with UPSTREAM_UNAVAILABLE if the answer may be of another history. */
  async #ask<T>(asked: Promise<T>): Promise<T> {
    const answer = await asked;
    try {
      await this.#parts.confirmHistory();
    } catch (error) {
      throw hasReason(error, "HISTORY_CHANGED") ? otherHistoryYet(error) : error;
    }
    return answer;
  }
}

function otherHistoryYet(cause?: unknown): WatchFanoutError {
  return upstreamUnavailable(
    "The store's history has become another one, which this replica has yet to take in. Try again soon.",
    cause,
  );
}
