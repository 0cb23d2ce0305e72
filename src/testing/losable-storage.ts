import { endIfRefused } from "../storage/checks.ts";
import { MemoryStorage } from "../storage/memory/memory-storage.ts";
import type { MemoryStore } from "../storage/memory/memory-store.ts";
import { MemoryWatch } from "../storage/memory/memory-watch.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  PutRequest,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../storage/storage.ts";

interface LosableStorageOptions {
  /** Called before each request. Throws if the store is lost. */
  readonly check: () => void;
  readonly onClosed: () => void;
}

/** A resource of an embedded store that can be lost. */
export class LosableStorage extends MemoryStorage {
  readonly #options: LosableStorageOptions;
  readonly #watches = new Set<MemoryWatch>();

  constructor(store: MemoryStore, resource: string, options: LosableStorageOptions) {
    super({ store, resource });
    this.#options = options;
  }

  override async get(request: GetRequest): Promise<GetResult> {
    this.#options.check();
    return super.get(request);
  }

  override async list(request: ListRequest): Promise<ListResult> {
    this.#options.check();
    return super.list(request);
  }

  override async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#options.check();
    return super.history(request);
  }

  override watch(request: WatchRequest): WatchStream {
    const watch = super.watch(request);
    if (!(watch instanceof MemoryWatch)) return watch;
    this.#watches.add(watch);
    endIfRefused(watch, this.#options.check);
    return watch;
  }

  override async put(request: PutRequest): Promise<WriteResult> {
    this.#options.check();
    return super.put(request);
  }

  override async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#options.check();
    return super.delete(request);
  }

  override async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#options.check();
    return super.currentRevision(signal);
  }

  override async historyId(signal?: AbortSignal): Promise<string> {
    this.#options.check();
    return super.historyId(signal);
  }

  /** Ends all open watches with this error. */
  endWatches(error: Error): void {
    for (const watch of this.#watches) watch.end(error);
    this.#watches.clear();
  }

  override async close(): Promise<void> {
    this.#options.onClosed();
    await super.close();
  }
}
