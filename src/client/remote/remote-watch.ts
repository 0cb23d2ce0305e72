import { WatchFanoutError } from "../../base/errors.ts";
import { WatchBatch } from "../../model/event.ts";
import { BatchQueue } from "../../storage/batch-queue.ts";
import { ReadableNotifier } from "../../storage/readable-notifier.ts";
import type { WatchStream } from "../../storage/storage.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { AtomicBatch } from "../watch/client-calls.ts";

/** The stream of a remote watch and how its batches are converted. */
export interface RemoteWatchSource {
  /** Opens the stream. `onOpened` is called before the first batch. */
  readonly open: (
    signal: AbortSignal,
    onOpened: (server: Endpoint) => void,
  ) => AsyncIterable<AtomicBatch>;
  /** Whether batches omit intermediate states, so that a reader must not stop within one. */
  readonly coalesces: boolean;
  /** Called when the server of the stream is known, if progress was requested before. */
  readonly requestServerProgress: (server: Endpoint) => void;
  /** Called once, when the stream has ended. */
  readonly onEnd: (watch: RemoteWatch) => void;
}

/**
 * One watch stream of another watch-fanout as a WatchStream: one batch, with a revision, per atomic batch. The queue
 * of unread batches is bounded; beyond it the stream is not read, which slows the server down by flow control.
 *
 * It ends with its stream. The reader knows the last revision, and opens another watch.
 */
export class RemoteWatch implements WatchStream {
  readonly #source: RemoteWatchSource;
  readonly #queue: BatchQueue;
  readonly #notifier = new ReadableNotifier(() => !this.#queue.isEmpty || this.#end !== undefined);
  readonly #stopping = new AbortController();
  #server: Endpoint | undefined;
  #isProgressWanted = false;
  /** Everything up to and including this revision has arrived. */
  #position = 0;
  /** Why it has ended. Visible to the reader after all batches that arrived before. */
  #end: Error | null | undefined;
  /** Continues to read the stream. */
  #resume: (() => void) | undefined;

  /** `maxHeldBytes`: see WatchRequest. */
  constructor(source: RemoteWatchSource, maxHeldBytes?: number) {
    this.#source = source;
    this.#queue = new BatchQueue(maxHeldBytes);
  }

  /** Opens the stream, unless the watch has already ended. */
  start(): void {
    if (this.#end === undefined) void this.#pump();
  }

  /** The server of the stream; undefined before its first response. */
  get server(): Endpoint | undefined {
    return this.#server;
  }

  get ended(): Error | null | undefined {
    return this.#queue.isEmpty ? this.#end : undefined;
  }

  read(): WatchBatch | undefined {
    const batch = this.#queue.shift();
    this.#notifier.isWaiting = batch === undefined && this.#end === undefined;
    if (this.#queue.isHalfEmpty) this.#resume?.();
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#notifier.listener = listener;
  }

  close(): void {
    this.end(null);
  }

  /** Ends immediately and drops unread batches. Only the first call has an effect. */
  end(why: Error | null): void {
    if (this.ended !== undefined) return;
    this.#queue.clear();
    this.#finish(why);
  }

  /** Requests progress, as soon as the server is known. */
  requestProgress(): void {
    if (this.#server === undefined) this.#isProgressWanted = true;
    else this.#source.requestServerProgress(this.#server);
  }

  /**
   * The server has reached `revision`. A stream that has not reached it receives it from the server; one that has
   * delivers its own position again, since the requester waits for a response.
   */
  reached(revision: number): void {
    if (this.#end !== undefined || !this.#queue.isEmpty || this.#position < revision) return;
    this.#push(new WatchBatch(this.#position, []));
  }

  async #pump(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      for await (const batch of this.#source.open(signal, (server) => this.#opened(server))) {
        if (this.#end !== undefined) return;
        this.#take(batch);
        if (this.#queue.isFull) await this.#drained();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #opened(server: Endpoint): void {
    this.#server = server;
    if (this.#isProgressWanted) this.#source.requestServerProgress(server);
  }

  #take({ revision, events, initial }: AtomicBatch): void {
    this.#position = revision;
    this.#push(new WatchBatch(revision, events, initial, initial || this.#source.coalesces));
  }

  #push(batch: WatchBatch): void {
    this.#queue.push(batch);
    this.#notifier.notify();
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      this.#resume = () => {
        this.#resume = undefined;
        resolve();
      };
    });
  }

  /** Batches that have arrived can still be read. */
  #fail(error: unknown): void {
    if (this.#end !== undefined) return;
    this.#finish(error instanceof Error ? error : fault(error));
  }

  #finish(why: Error | null): void {
    this.#end = why;
    this.#stopping.abort();
    this.#resume?.();
    this.#source.onEnd(this);
    this.#notifier.notify();
  }
}

function fault(thrown: unknown): WatchFanoutError {
  return new WatchFanoutError("INTERNAL", `The watch was ended by ${String(thrown)}.`);
}

/**
 * Requests progress from the servers of watches: makes a server look up the current revision, which it then sends to
 * its streams, and notifies those that have reached it. One request per server at a time, since a response covers only
 * requests from before it was sent.
 */
export class ServerRevisionProbe {
  readonly #currentRevision: (server: Endpoint) => Promise<number>;
  readonly #watches: ReadonlySet<RemoteWatch>;
  /** The servers with a request in flight, and whether to repeat it afterwards. */
  readonly #inFlight = new Map<Endpoint, boolean>();

  /** `currentRevision` reads the store's revision through this server. */
  constructor(
    currentRevision: (server: Endpoint) => Promise<number>,
    watches: ReadonlySet<RemoteWatch>,
  ) {
    this.#currentRevision = currentRevision;
    this.#watches = watches;
  }

  request(server: Endpoint): void {
    const isInFlight = this.#inFlight.has(server);
    this.#inFlight.set(server, isInFlight);
    if (!isInFlight) void this.#run(server);
  }

  async #run(server: Endpoint): Promise<void> {
    // If the server does not respond, its streams end, which notifies the requesters.
    const revision = await this.#currentRevision(server).catch(() => undefined);
    const watches = [...this.#watches].filter((watch) => watch.server === server);
    if (revision !== undefined) for (const watch of watches) watch.reached(revision);
    const isRepeated = this.#inFlight.get(server) === true;
    this.#inFlight.delete(server);
    if (isRepeated && watches.length > 0) this.request(server);
  }
}
