import {
  objectNotFound,
  revisionConflict,
  upstreamUnavailable,
  WatchFanoutError,
} from "../base/errors.ts";
import { WatchBatch, WatchEvent } from "../model/event.ts";
import { StoredObject } from "../model/object.ts";
import {
  checkDelete,
  checkGet,
  checkHistoryRequest,
  checkList,
  checkPut,
  checkWatch,
  endIfRefused,
} from "../storage/checks.ts";
import { scopeOfList } from "../storage/key-scopes.ts";
import type { MemoryStorage } from "../storage/memory/memory-storage.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  KeyInterval,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchScope,
  WatchStream,
  WriteResult,
} from "../storage/storage.ts";

interface ResourceStorageOptions {
  /** Called before each request. Throws if it can't be served. */
  readonly check: () => void;
  readonly closed: () => void;
}

/** The objects of one resource in an embedded store that several resources share. Closing it does not close the store. */
export class ResourceStorage implements Storage {
  readonly #store: MemoryStorage;
  readonly #options: ResourceStorageOptions;
  /** Of its keys in the store. */
  readonly #prefix: string;
  readonly #watches = new Set<ResourceWatch>();
  #isClosed = false;

  constructor(resource: string, store: MemoryStorage, options: ResourceStorageOptions) {
    this.#store = store;
    this.#options = options;
    this.#prefix = `${resource}\0`;
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#check();
    checkGet(request);
    const result = await this.#store.get({ ...request, key: this.#prefix + request.key });
    return { ...result, object: result.object && this.#own(result.object) };
  }

  async list(request: ListRequest): Promise<ListResult> {
    this.#check();
    checkList(request);
    const { prefix, interval, startAfter } = request;
    const result = await this.#store.list({
      ...request,
      prefix: this.#prefix + prefix,
      interval: interval && this.#within(interval),
      startAfter: startAfter && this.#prefix + startAfter,
    });
    const items = result.items.map((item) => this.#own(item));
    return { ...result, items, next: result.next?.slice(this.#prefix.length) };
  }

  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#check();
    checkHistoryRequest(request);
    const result = await this.#store.history({ ...request, key: this.#prefix + request.key });
    return { ...result, events: result.events.map((event) => this.#ownEvent(event)) };
  }

  watch(request: WatchRequest): WatchStream {
    const inner = this.#store.watch({ ...request, scope: this.#scope(request.scope) });
    const watch = new ResourceWatch(
      inner,
      (event) => this.#ownEvent(event),
      () => this.#watches.delete(watch),
    );
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#check();
      checkWatch(request);
    });
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#check();
    checkPut(request);
    return this.#written(request, this.#store.put({ ...request, key: this.#prefix + request.key }));
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#check();
    checkDelete(request);
    return this.#written(
      request,
      this.#store.delete({ ...request, key: this.#prefix + request.key }),
    );
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#check();
    return this.#store.currentRevision(signal);
  }

  async historyId(signal?: AbortSignal): Promise<string> {
    this.#check();
    return this.#store.historyId(signal);
  }

  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#check();
    return this.#store.renewHistory(known, signal);
  }

  requestProgress(): void {
    this.#store.requestProgress();
  }

  /** Ends all open watches with this error. */
  endWatches(error: Error): void {
    for (const watch of this.#watches) watch.end(error);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.endWatches(closed());
    this.#options.closed();
  }

  #check(): void {
    if (this.#isClosed) throw closed();
    this.#options.check();
  }

  /** The result of a write. Errors name the key in the resource. */
  async #written(
    { key, expectedModRevision = 0 }: PutRequest | DeleteRequest,
    write: Promise<WriteResult>,
  ): Promise<WriteResult> {
    try {
      const result = await write;
      return { ...result, object: this.#own(result.object) };
    } catch (error) {
      if (!(error instanceof WatchFanoutError)) throw error;
      const { reason, metadata } = error;
      if (reason === "OBJECT_NOT_FOUND") throw objectNotFound(key, Number(metadata["revision"]));
      if (reason !== "REVISION_CONFLICT") throw error;
      throw revisionConflict(key, expectedModRevision, Number(metadata["mod_revision"]));
    }
  }

  #scope(scope: WatchScope): WatchScope {
    if ("key" in scope) return { key: this.#prefix + scope.key };
    if ("prefix" in scope) return { prefix: this.#prefix + scope.prefix };
    return scopeOfList({ prefix: this.#prefix, interval: this.#within(scope) });
  }

  /** An interval in the store. Without an end it reaches beyond this resource. */
  #within({ from, to }: KeyInterval): KeyInterval {
    return { from: this.#prefix + from, to: to === undefined ? undefined : this.#prefix + to };
  }

  /** An object of the store with its key in the resource. */
  #own(object: StoredObject): StoredObject {
    return new StoredObject(
      object.key.slice(this.#prefix.length),
      object.content,
      object.createRevision,
      object.modRevision,
      object.version,
      object.lease,
      object.valueStart,
      object.valueEnd,
    );
  }

  #ownEvent({ type, object, previous }: WatchEvent): WatchEvent {
    return new WatchEvent(type, this.#own(object), previous && this.#own(previous));
  }
}

function closed(): Error {
  return upstreamUnavailable("The storage is closed.");
}

/** A watch of the store, whose events are those of a resource. */
class ResourceWatch implements WatchStream {
  readonly #inner: WatchStream;
  readonly #own: (event: WatchEvent) => WatchEvent;
  readonly #closed: () => void;
  #ended: Error | undefined;

  constructor(inner: WatchStream, own: (event: WatchEvent) => WatchEvent, closed: () => void) {
    this.#inner = inner;
    this.#own = own;
    this.#closed = closed;
  }

  get ended(): Error | null | undefined {
    return this.#ended ?? this.#inner.ended;
  }

  read(): WatchBatch | undefined {
    const batch = this.#inner.read();
    return batch && new WatchBatch(batch.revision, batch.events.map(this.#own));
  }

  onReadable(listener: () => void): void {
    this.#inner.onReadable(listener);
  }

  /** Drops the unread batch. */
  end(error: Error): void {
    this.#ended ??= error;
    this.close();
  }

  close(): void {
    this.#inner.close();
    this.#closed();
  }
}
