import type { WatchBatch } from "../../src/model/event.ts";
import type { StoredObject } from "../../src/model/object.ts";
import type {
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../../src/storage/storage.ts";

/**
 * A storage that behaves as its test says, and records its calls. By default it is at revision 5, lists `objects` at
 * any revision, and opens watches that stay silent.
 */
export class ScriptedStorage implements Storage {
  readonly calls: string[] = [];
  readonly streams: ScriptedStream[] = [];
  objects: readonly StoredObject[] = [];
  /** Return, reject, or take as long as a test wants; like every storage, they reject when aborted. */
  onCurrentRevision: () => number | Promise<number> = () => 5;
  onList: (request: ListRequest, revision: number) => ListResult | Promise<ListResult> = (
    request,
    revision,
  ) => this.pageOf(request, revision);
  onWatch: (stream: ScriptedStream, request: WatchRequest) => void = () => {};

  /** By default the state is still the delivered one. */
  onGet: (key: string, revision: number) => GetResult | Promise<GetResult> = (key, revision) =>
    this.#objectAt(key, revision);

  /** The stream of the newest watch. */
  get stream(): ScriptedStream {
    const stream = this.streams.at(-1);
    if (stream === undefined) throw new Error("Nothing is watched yet.");
    return stream;
  }

  /** One page of `objects`, which are in order. */
  pageOf({ startAfter, limit }: ListRequest, revision: number): ListResult {
    const from = this.objects.findIndex(({ key }) => key === startAfter) + 1;
    const end = limit === 0 ? this.objects.length : from + limit;
    const items = this.objects.slice(from, end);
    const more = end < this.objects.length;
    return { revision, items, next: more ? items.at(-1)?.key : undefined, remaining: undefined };
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.calls.push("current revision");
    return abortable(this.onCurrentRevision(), signal);
  }

  async list(request: ListRequest): Promise<ListResult> {
    const { at, startAfter, limit, prefix } = request;
    if (at.match !== "EXACT")
      throw new Error(`A listing ${at.match} is in no step of a Reflector.`);
    const after = startAfter === undefined ? "" : ` after ${startAfter}`;
    this.calls.push(`list ${limit} of "${prefix}"${after} at ${at.revision}`);
    return abortable(this.onList(request, at.revision), request.signal);
  }

  watch(request: WatchRequest): WatchStream {
    this.calls.push(`watch ${JSON.stringify(request.scope)} after ${request.afterRevision}`);
    const stream = new ScriptedStream();
    this.streams.push(stream);
    this.onWatch(stream, request);
    return stream;
  }

  async historyId(): Promise<string> {
    return "";
  }

  async renewHistory(): Promise<string> {
    return "";
  }

  requestProgress(): void {}

  async close(): Promise<void> {}

  async get({ key, at, signal }: GetRequest): Promise<GetResult> {
    if (at.match !== "EXACT") throw new Error(`A Get ${at.match} is in no step of a Reflector.`);
    return abortable(this.onGet(key, at.revision), signal);
  }

  /** The object `key` at `revision`, by the listed objects and the delivered events. */
  #objectAt(key: string, revision: number): GetResult {
    const events = this.streams
      .flatMap(({ delivered }) => delivered)
      .flatMap((batch) => batch.events);
    const change = events.findLast(
      ({ object }) => object.key === key && object.modRevision <= revision,
    );
    const listed = this.objects.find((object) => object.key === key);
    const object = change === undefined ? listed : change.object;
    return { revision, object: change?.type === "DELETED" ? undefined : object };
  }

  put(): Promise<WriteResult> {
    throw new Error("A Reflector writes nothing.");
  }

  delete(): Promise<WriteResult> {
    throw new Error("A Reflector writes nothing.");
  }
}

/** A stream that its test fills and ends. */
export class ScriptedStream implements WatchStream {
  /** All batches that were ever pushed. */
  readonly delivered: WatchBatch[] = [];
  readonly #batches: WatchBatch[] = [];
  #end: Error | null | undefined;
  #listener: () => void = () => {};
  #waiting = true;

  get ended(): Error | null | undefined {
    return this.#batches.length > 0 ? undefined : this.#end;
  }

  push(...batches: readonly WatchBatch[]): void {
    if (this.#end !== undefined) return;
    this.delivered.push(...batches);
    this.#batches.push(...batches);
    this.#notify();
  }

  /** Batches from before the end can still be read. */
  end(error: Error): void {
    this.#end ??= error;
    this.#notify();
  }

  read(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    this.#waiting = batch === undefined;
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.#batches.length = 0;
    this.#end ??= null;
  }

  /** Calls the listener, whether or not there is something to read. */
  notify(): void {
    this.#listener();
  }

  #notify(): void {
    if (!this.#waiting) return;
    this.#waiting = false;
    this.#listener();
  }
}

/** A promise that never settles. */
export const never = new Promise<never>(() => {});

function abortable<T>(response: T | Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason));
    if (signal?.aborted === true) reject(signal.reason);
    Promise.resolve(response).then(resolve, reject);
  });
}
