import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import {
  LimitedUpstreamReader,
  type LimitedUpstreamReaderDeps,
} from "../../cacher/freshness/upstream-reader.ts";
import type { ObjectAttributes, Projected } from "../../cacher/request/object-attributes.ts";
import type { Projection } from "../../cacher/request/projection.ts";
import type { CacheGetRequest, CacheListRequest } from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type {
  DeleteRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListResult,
  PutRequest,
  Storage,
  WatchStream,
  WriteResult,
} from "../../storage/storage.ts";
import type { ServedResource } from "../calls/service-options.ts";

/**
 * A resource without a cache, for objects that are read too rarely to keep them in memory. Get, List and writes go to the
 * storage. Watch is refused.
 */
export class UncachedResource implements ServedResource {
  readonly ready = true;
  readonly #name: string;
  readonly #storage: Storage;
  readonly #attributes: ObjectAttributes;
  readonly #reads: LimitedUpstreamReader;
  #historyId = "";

  /** `reads` bounds the reads, all of which go to the storage. */
  constructor(
    name: string,
    storage: Storage,
    attributes: ObjectAttributes,
    reads: Pick<LimitedUpstreamReaderDeps, "limiter" | "scheduler">,
  ) {
    this.#name = name;
    this.#storage = storage;
    this.#attributes = attributes;
    this.#reads = new LimitedUpstreamReader({
      ...{ ...reads, name, storage },
      check: (result) => this.#namingHistory(result),
    });
  }

  get currentHistoryId(): string {
    return this.#historyId;
  }

  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    return this.#attributes.select(labelSelector, fieldSelector);
  }

  project(projected: Projected): Projection {
    return this.#attributes.project(projected);
  }

  get hasAttributes(): boolean {
    return this.#attributes.hasAttributes;
  }

  get fields(): NonNullable<ServedResource["fields"]> {
    return { declared: this.#attributes.declaredFields, indexed: [] };
  }

  async findHistory(signal?: AbortSignal): Promise<string> {
    const historyId = await this.#storage.historyId(signal);
    this.#historyId = historyId;
    return historyId;
  }

  get(request: CacheGetRequest): Promise<GetResult> {
    return this.#reads.get(request);
  }

  list(request: CacheListRequest): Promise<ListResult> {
    return this.#reads.list(request);
  }

  history(request: HistoryRequest): Promise<HistoryResult> {
    return this.#reads.history(request);
  }

  async put(request: PutRequest): Promise<WriteResult> {
    await this.findHistory(request.signal);
    return this.#storage.put(request);
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    await this.findHistory(request.signal);
    return this.#storage.delete(request);
  }

  watch(): WatchStream {
    const ended = new WatchFanoutError(
      "INVALID_REQUEST",
      `The resource ${JSON.stringify(this.#name)} is served without a cache, so it can't be watched. ` +
        "List it, or ask the operator to set the resource's cache to on.",
      { field: "resource" },
    );
    return { ended, read: () => undefined, onReadable: () => {}, close: () => {} };
  }

  /**
   * Adds the current history's id to HISTORY_CHANGED. A storage detects during a read that a revision is of another
   * history, but does not read the id.
   */
  async #namingHistory<T>(read: Promise<T>): Promise<T> {
    try {
      return await read;
    } catch (error) {
      if (!hasReason(error, "HISTORY_CHANGED")) throw error;
      if ((error.metadata["history_id"] ?? "") !== "") throw error;
      throw error.with({ history_id: this.#historyId });
    }
  }

  /** Its readiness does not change. */
  onReadyChange(): void {}

  /** It has no streams. */
  drain(): void {}
}
