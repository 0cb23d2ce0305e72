import { type Reason, WatchFanoutError } from "../../src/base/errors.ts";
import type { WatchBatch } from "../../src/model/event.ts";
import type { ServedResource } from "../../src/server/server.ts";
import type { GetResult, ListResult, WatchStream, WriteResult } from "../../src/storage/storage.ts";

/** A resource with the results that a test sets. */
export class ScriptedResource implements ServedResource {
  ready = true;
  readonly currentHistoryId = "";
  readonly streams: ScriptedStream[] = [];
  /** Performs reads and writes. */
  answer: (signal: AbortSignal | undefined) => Promise<never> = () => new Promise(() => {});
  readonly #readyListeners: ((ready: boolean) => void)[] = [];
  #onWatch: (() => void)[] = [];

  get({ signal }: { signal?: AbortSignal | undefined }): Promise<GetResult> {
    return this.answer(signal);
  }
  list({ signal }: { signal?: AbortSignal | undefined }): Promise<ListResult> {
    return this.answer(signal);
  }
  put({ signal }: { signal?: AbortSignal | undefined }): Promise<WriteResult> {
    return this.answer(signal);
  }
  delete({ signal }: { signal?: AbortSignal | undefined }): Promise<WriteResult> {
    return this.answer(signal);
  }

  select(): undefined {}

  watch(): ScriptedStream {
    const stream = new ScriptedStream();
    this.streams.push(stream);
    for (const wake of this.#onWatch.splice(0)) wake();
    return stream;
  }

  onReadyChange(listener: (ready: boolean) => void): void {
    this.#readyListeners.push(listener);
  }

  drain(): void {
    for (const stream of this.streams) stream.fail("DRAINING");
  }

  setReady(ready: boolean): void {
    this.ready = ready;
    for (const listener of this.#readyListeners) listener(ready);
  }

  /** The stream of a watch, by the order of their opening. Resolves once it is open. */
  async watched(index: number): Promise<ScriptedStream> {
    for (;;) {
      const stream = this.streams[index];
      if (stream !== undefined) return stream;
      await new Promise<void>((resolve) => this.#onWatch.push(resolve));
    }
  }
}

export class ScriptedStream implements WatchStream {
  readonly #batches: WatchBatch[] = [];
  #end: Error | undefined;
  #listener: (() => void) | undefined;
  #armed = false;
  /** Resolves when its reader has closed it. */
  readonly whenClosed: Promise<void>;
  #resolveClosed: () => void = () => {};
  closed = false;

  constructor() {
    this.whenClosed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
  }

  /** Number of unread batches. */
  get unread(): number {
    return this.#batches.length;
  }

  get ended(): Error | null | undefined {
    if (this.closed) return null;
    return this.#batches.length > 0 ? undefined : this.#end;
  }

  read(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    this.#armed = batch === undefined;
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.closed = true;
    this.#resolveClosed();
  }

  give(...batches: readonly WatchBatch[]): void {
    this.#batches.push(...batches);
    this.#notify();
  }

  fail(reason: Reason): void {
    this.#end = new WatchFanoutError(reason, `Ended with ${reason}.`);
    this.#notify();
  }

  /** Drops unread batches and ends the stream, even if its reader is stalled. */
  abandon(reason: Reason): void {
    this.#batches.length = 0;
    this.#armed = true;
    this.fail(reason);
  }

  #notify(): void {
    if (!this.#armed) return;
    this.#armed = false;
    this.#listener?.();
  }
}
