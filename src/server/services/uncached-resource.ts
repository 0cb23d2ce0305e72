import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import {
  LimitedUpstreamReader,
  type LimitedUpstreamReaderDeps,
} from "../../cacher/freshness/limited-reader.ts";
import type { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import type { CacheGetRequest, CacheListRequest } from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type {
  DeleteRequest,
  GetResult,
  ListResult,
  PutRequest,
  Storage,
  WatchStream,
  WriteResult,
} from "../../storage/storage.ts";
import type { ServedResource } from "../calls/call-context.ts";

/**
 * A resource without a cache, for what is read too seldom to be kept in memory: Get, List and writes are
 * the storage's own, and there is nothing to watch.
 */
export class UncachedResource implements ServedResource {
  readonly ready = true;
  readonly #name: string;
  readonly #storage: Storage;
  readonly #attribution: ObjectAttributes;
  readonly #reads: LimitedUpstreamReader;
  #historyId = "";

  /** `reads` bounds the reads that go to the storage: all of them. */
  constructor(
    name: string,
    storage: Storage,
    attribution: ObjectAttributes,
    reads: Pick<LimitedUpstreamReaderDeps, "limiter" | "scheduler">,
  ) {
    this.#name = name;
    this.#storage = storage;
    this.#attribution = attribution;
    this.#reads = new LimitedUpstreamReader({
      ...{ ...reads, name, storage },
      check: (answer) => this.#namingHistory(answer),
    });
  }

  get currentHistoryId(): string {
    return this.#historyId;
  }

  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    return this.#attribution.select(labelSelector, fieldSelector);
  }

  async findHistory(signal?: AbortSignal): Promise<void> {
    this.#historyId = await this.#storage.historyId(signal);
  }

  async get({ admit, ...request }: CacheGetRequest): Promise<GetResult> {
    const wait = admit?.();
    if (wait !== undefined) await wait;
    return this.#reads.get(request);
  }

  async list({ admit, ...request }: CacheListRequest): Promise<ListResult> {
    const wait = admit?.();
    if (wait !== undefined) await wait;
    return this.#reads.list(request);
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
        "List it, or have whoever runs the service set its cache to on.",
      { field: "resource" },
    );
    return { ended, read: () => undefined, onReadable: () => {}, close: () => {} };
  }

  /**
   * Says which history there is, where a storage only sees that a revision is not of it: it does not ask
   * for the id while it reads.
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

  /** It is always as ready as it is now. */
  onReadyChange(): void {}

  /** It has no streams. */
  drain(): void {}
}
