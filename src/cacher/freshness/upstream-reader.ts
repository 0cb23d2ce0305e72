import { hasReason } from "../../base/errors.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import type { GetResult, ListResult, Storage } from "../../storage/storage.ts";
import { historyChangePending } from "../request/errors.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import type { ComponentContext } from "../state/component.ts";
import { LimitedUpstreamReader } from "./limited-reader.ts";
import type { UpstreamLimiter } from "./upstream-limiter.ts";

type UpstreamReaderContext = Pick<ComponentContext, "name" | "storage" | "cache" | "scheduler">;

/** Confirms that the store still has the history that the cache holds. */
type HistoryCheck = Pick<Reflector, "confirmHistory" | "historyGeneration">;

/**
 * Reads that only the store can serve. Every response is confirmed to belong to the history that the cache holds:
 * while the upstream watch is broken, the store may have been restored from a backup, which its responses do not show,
 * and a client that continued from them would mix two histories. The limiter bounds concurrent reads.
 */
export class UpstreamReader implements Pick<Storage, "get" | "list" | "currentRevision"> {
  readonly #context: UpstreamReaderContext;
  readonly #history: HistoryCheck;
  readonly #reads: LimitedUpstreamReader;

  constructor(context: UpstreamReaderContext, limiter: UpstreamLimiter, history: HistoryCheck) {
    const { name, storage, scheduler } = context;
    this.#context = context;
    this.#history = history;
    this.#reads = new LimitedUpstreamReader({
      ...{ name, storage, scheduler, limiter },
      check: (response) => this.#confirmed(response),
    });
  }

  /** `since`: when the call arrived, in the clock's milliseconds. Default: now. */
  get(request: CacheGetRequest, since?: number): Promise<GetResult> {
    return this.#reads.get(request, since);
  }

  /** `since`: see `get`. */
  list(request: CacheListRequest, since?: number): Promise<ListResult> {
    return this.#reads.list(request, since);
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    const { cache, storage } = this.#context;
    const { eventWindow, revision } = cache;
    const current = await this.#confirmed(storage.currentRevision(signal));
    // Within one history the store's revision never falls below one that it has delivered.
    if (current < revision && cache.eventWindow === eventWindow) throw historyChangePending();
    return current;
  }

  /**
   * Rejects with UPSTREAM_UNAVAILABLE if the response may belong to another history. The generation is compared as
   * well, since the store may have responded, wholly or in part, before the cache took in its present history.
   */
  async #confirmed<T>(pending: Promise<T>): Promise<T> {
    const history = this.#history;
    const generation = history.historyGeneration;
    const response = await pending;
    try {
      await history.confirmHistory();
    } catch (error) {
      throw hasReason(error, "HISTORY_CHANGED") ? historyChangePending(error) : error;
    }
    if (generation !== history.historyGeneration) throw historyChangePending();
    return response;
  }
}
