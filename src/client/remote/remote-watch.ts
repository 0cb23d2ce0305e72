import { WatchFanoutError } from "../../base/errors.ts";
import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import type { Predicate } from "../../model/predicate.ts";
import { transition } from "../../model/predicate.ts";
import { BatchQueue } from "../../storage/batch-queue.ts";
import type { WatchStream } from "../../storage/storage.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { AtomicBatch } from "../watch/batch-assembler.ts";

/** How a watch of a RemoteStorage comes to its units, and what it makes of them. */
export interface RemoteWatchSource {
  /** Opens the one stream. `onOpened` is called before the first unit. */
  readonly open: (
    signal: AbortSignal,
    onOpened: (server: Endpoint) => void,
  ) => AsyncIterable<AtomicBatch>;
  readonly predicate: Predicate | undefined;
  /** Whether units leave out what was between, so that nobody may stop within one. */
  readonly coalesces: boolean;
  /** Called once it is known which server the stream is on, if progress was asked for before. */
  readonly requestServerProgress: (server: Endpoint) => void;
  /** Called once, when the stream has ended. */
  readonly onEnd: (watch: RemoteWatch) => void;
}

/**
 * One stream of another watch-fanout as a WatchStream: a batch for each whole unit, so each has a revision.
 * What is not read yet is bounded; beyond that the stream is left unread, and the server sees that.
 *
 * It breaks with the stream below it. Whoever reads it knows how far it came, and watches anew.
 */
export class RemoteWatch implements WatchStream {
  readonly #source: RemoteWatchSource;
  readonly #queue = new BatchQueue();
  readonly #stopping = new AbortController();
  #server: Endpoint | undefined;
  #isProgressWanted = false;
  /** Everything up to and including this revision has come. */
  #position = 0;
  /** Why it ends, once all that came before has been read. */
  #end: Error | null | undefined;
  #listener: () => void = () => {};
  /** Whether the listener is to be called when there is something to read. */
  #isWaiting = true;
  #isWaking = false;
  /** Lets the stream go on being read. */
  #resume: (() => void) | undefined;

  constructor(source: RemoteWatchSource) {
    this.#source = source;
  }

  /** Begins, unless it has been ended before. */
  start(): void {
    if (this.#end === undefined) void this.#pump();
  }

  /** The server that answers; undefined until it does. */
  get server(): Endpoint | undefined {
    return this.#server;
  }

  get ended(): Error | null | undefined {
    return this.#queue.isEmpty ? this.#end : undefined;
  }

  read(): WatchBatch | undefined {
    const batch = this.#queue.shift();
    this.#isWaiting = batch === undefined && this.#end === undefined;
    if (this.#queue.isHalfEmpty) this.#resume?.();
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.end(null);
  }

  /** Ends at once: what waits is dropped. Only the first end counts. */
  end(why: Error | null): void {
    if (this.ended !== undefined) return;
    this.#queue.clear();
    this.#finish(why);
  }

  /** Asks for progress where its server is known; otherwise as soon as it is. */
  requestProgress(): void {
    if (this.#server === undefined) this.#isProgressWanted = true;
    else this.#source.requestServerProgress(this.#server);
  }

  /**
   * The server is known to be at `revision`. It tells a stream that is not so far by itself; one that is gets
   * its own position again, as whoever asked waits for an answer.
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
    this.#push(
      new WatchBatch(revision, this.#picked(events), initial, initial || this.#source.coalesces),
    );
  }

  #picked(events: readonly WatchEvent[]): readonly WatchEvent[] {
    const { predicate } = this.#source;
    if (predicate === undefined) return events;
    const picked: WatchEvent[] = [];
    for (const event of events) {
      const becomes = transition(event, predicate);
      if (becomes !== undefined) picked.push(becomes);
    }
    return picked;
  }

  #push(batch: WatchBatch): void {
    this.#queue.push(batch);
    this.#wake();
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      this.#resume = () => {
        this.#resume = undefined;
        resolve();
      };
    });
  }

  /** What has come may still be read. */
  #fail(error: unknown): void {
    if (this.#end !== undefined) return;
    this.#finish(error instanceof Error ? error : fault(error));
  }

  #finish(why: Error | null): void {
    this.#end = why;
    this.#stopping.abort();
    this.#resume?.();
    this.#source.onEnd(this);
    this.#wake();
  }

  /** Later, so that the listener is never called from within what its reader calls. */
  #wake(): void {
    if (!this.#isWaiting || this.#isWaking) return;
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      this.#isWaiting = false;
      this.#listener();
    });
  }
}

function fault(thrown: unknown): WatchFanoutError {
  return new WatchFanoutError("INTERNAL", `The watch was ended by ${String(thrown)}.`);
}
