import { Fifo } from "../base/fifo.ts";
import type { WatchBatch } from "../model/event.ts";

/** At either bound the stream from the source is paused until the reader has taken half of it. */
const maxBatches = 256;
const defaultMaxBytes = 16 * 1024 * 1024;

/** Memory of a batch without its events, in bytes. */
const batchOverhead = 128;

/**
 * The unread batches of one stream, bounded in number and bytes. The owner pauses the source while the queue is full.
 */
export class BatchQueue {
  readonly #maxBytes: number;
  #batches = new Fifo<WatchBatch>();
  #bytes = 0;

  constructor(maxBytes: number = defaultMaxBytes) {
    this.#maxBytes = maxBytes;
  }

  get isEmpty(): boolean {
    return this.#batches.length === 0;
  }

  get isFull(): boolean {
    return this.#batches.length >= maxBatches || this.#bytes >= this.#maxBytes;
  }

  get isHalfEmpty(): boolean {
    return this.#batches.length <= maxBatches / 2 && this.#bytes <= this.#maxBytes / 2;
  }

  push(batch: WatchBatch): void {
    this.#batches.push(batch);
    this.#bytes += batch.estimatedBytes + batchOverhead;
  }

  /** The batch at `position` from the front. */
  at(position: number): WatchBatch | undefined {
    return this.#batches.at(position);
  }

  shift(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    if (batch !== undefined) this.#bytes -= batch.estimatedBytes + batchOverhead;
    return batch;
  }

  clear(): void {
    this.#batches = new Fifo();
    this.#bytes = 0;
  }
}
