import { upstreamUnavailable } from "../../src/base/errors.ts";
import type { WatchBatch } from "../../src/model/event.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../../src/storage/storage.ts";

/**
 * A Storage at a distance: its streams can be delayed, while calls are answered as usual. It
 * counts how often it is asked for its revision. Closing it leaves the one behind it open, which others
 * may use.
 */
export class SlowStorage implements Storage {
  readonly #inner: Storage;
  readonly #streams = new Set<SlowStream>();
  #held = false;
  revisionsAsked = 0;

  constructor(inner: Storage) {
    this.#inner = inner;
  }

  get held(): boolean {
    return this.#held;
  }

  /** From now on nothing comes through. */
  hold(): void {
    this.#held = true;
  }

  /** Delivers what was delayed, and everything after it without delay. */
  release(): void {
    this.#held = false;
    for (const stream of this.#streams) stream.wake();
  }

  /** Everything that streams breaks, with what was held up, as if the connection had. */
  cut(): void {
    this.#held = false;
    for (const stream of this.#streams) stream.cut();
    this.#streams.clear();
  }

  watch(request: WatchRequest): WatchStream {
    const stream = new SlowStream(this.#inner.watch(request), this);
    this.#streams.add(stream);
    return stream;
  }

  currentRevision(signal?: AbortSignal): Promise<number> {
    this.revisionsAsked++;
    return this.#inner.currentRevision(signal);
  }

  get(request: GetRequest): Promise<GetResult> {
    return this.#inner.get(request);
  }

  list(request: ListRequest): Promise<ListResult> {
    return this.#inner.list(request);
  }

  history(request: HistoryRequest): Promise<HistoryResult> {
    if (this.#inner.history === undefined) throw new Error("The storage has no histories.");
    return this.#inner.history(request);
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#inner.put(request);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#inner.delete(request);
  }

  historyId(signal?: AbortSignal): Promise<string> {
    return this.#inner.historyId(signal);
  }

  renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    return this.#inner.renewHistory(known, signal);
  }

  requestProgress(): void {
    this.#inner.requestProgress();
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.close();
  }
}

class SlowStream implements WatchStream {
  readonly #inner: WatchStream;
  readonly #storage: SlowStorage;
  #listener = (): void => {};
  #cut: Error | undefined;

  constructor(inner: WatchStream, storage: SlowStorage) {
    this.#inner = inner;
    this.#storage = storage;
  }

  read(): WatchBatch | undefined {
    return this.#storage.held ? undefined : this.#inner.read();
  }

  get ended(): Error | null | undefined {
    if (this.#cut !== undefined) return this.#cut;
    return this.#storage.held ? undefined : this.#inner.ended;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
    this.#inner.onReadable(() => this.wake());
  }

  wake(): void {
    if (!this.#storage.held) this.#listener();
  }

  cut(): void {
    this.#cut = upstreamUnavailable("The connection broke.");
    this.#inner.onReadable(() => {});
    this.#inner.close();
    this.#listener();
  }

  close(): void {
    this.#inner.close();
  }
}
