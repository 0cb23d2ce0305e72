import type { WatchBatch } from "../../model/event.ts";
import type { WatcherBounds } from "./watcher-bounds.ts";

/** The batches that a watcher's client has yet to read. */
export class WatcherBuffer {
  /** The next one. A watcher that is live mostly has no other. */
  #first: WatchBatch | undefined;
  #others: WatchBatch[] | undefined;
  #bytes = 0;

  get length(): number {
    return this.#first === undefined ? 0 : 1 + (this.#others?.length ?? 0);
  }

  /** Estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  /** When the oldest event in it arrived, in the clock's milliseconds; undefined without one, or if it is not known. */
  get arrivedAt(): number | undefined {
    if (this.#first?.arrivedAt !== undefined) return this.#first.arrivedAt;
    return this.#others?.find(({ arrivedAt }) => arrivedAt !== undefined)?.arrivedAt;
  }

  /** Whether the batch fits. An empty buffer has room for any batch. */
  hasRoom(batch: WatchBatch, bounds: BufferBounds): boolean {
    const { length } = this;
    if (length === 0) return true;
    return length < bounds.batches && this.#bytes + batch.estimatedBytes <= bounds.bytes;
  }

  put(batch: WatchBatch): void {
    if (this.#first === undefined) {
      this.#first = batch;
    } else {
      this.#others ??= [];
      this.#others.push(batch);
    }
    this.#bytes += batch.estimatedBytes;
  }

  /** Replaces the last batch if that is a bookmark, too. Returns whether it was. */
  replaceBookmark(bookmark: WatchBatch): boolean {
    const others = this.#others;
    const last = others?.at(-1) ?? this.#first;
    if (last?.events.length !== 0) return false;
    if (others === undefined || others.length === 0) this.#first = bookmark;
    else others[others.length - 1] = bookmark;
    return true;
  }

  take(): WatchBatch | undefined {
    const batch = this.#first;
    if (batch === undefined) return undefined;
    this.#first = this.#others?.shift();
    this.#bytes -= batch.estimatedBytes;
    return batch;
  }

  clear(): void {
    this.#first = undefined;
    this.#others = undefined;
    this.#bytes = 0;
  }
}

/** Maximum size of a watcher's buffer. */
export interface BufferBounds {
  readonly batches: number;
  /** Estimated. An empty buffer has room for a batch of any size. */
  readonly bytes: number;
}

/** The pause of a client that a buffer can bridge, in milliseconds. */
const bridgedMs = 1_000;
/** Time constant of the average, in milliseconds: after this time without events, 1/e of a rate is left. */
const memoryMs = 10_000;

/**
 * Sizes the buffers of live watchers: large enough for the events of one second at the recent rate, so that a client
 * that pauses for that long needs no catch-up, and no larger, as there may be many watchers. The Kubernetes API server
 * sizes the channels of its watchers by the same rule.
 *
 * An indexed watcher gets only the events of one key or of one field value. Its buffer always has the minimum size.
 */
export class BufferSizing {
  readonly #bounds: WatcherBounds;
  readonly #batches = new DecayingRate();
  readonly #bytes = new DecayingRate();
  /** For indexed watchers. */
  readonly indexed: BufferBounds;
  #unindexed: BufferBounds;

  constructor(bounds: WatcherBounds) {
    this.#bounds = bounds;
    this.indexed = this.#sized(0, 0);
    this.#unindexed = this.indexed;
  }

  /** For unindexed watchers, as of the last `record`. */
  get unindexed(): BufferBounds {
    return this.#unindexed;
  }

  /** Records a round with events of `bytes` in total. `now` is by the clock, in milliseconds. */
  record(bytes: number, now: number): void {
    const batches = Math.max(1, Math.ceil(bytes / this.#bounds.batchBytes));
    const perMs = this.#batches.add(batches, now);
    this.#unindexed = this.#sized(perMs * bridgedMs, this.#bytes.add(bytes, now) * bridgedMs);
  }

  #sized(batches: number, bytes: number): BufferBounds {
    const { minBufferBatches, maxBufferBatches, minBufferBytes, maxBufferBytes } = this.#bounds;
    return {
      batches: Math.min(maxBufferBatches, Math.max(minBufferBatches, Math.ceil(batches))),
      bytes: Math.min(maxBufferBytes, Math.max(minBufferBytes, Math.ceil(bytes))),
    };
  }
}

/** An exponentially decaying average rate. */
class DecayingRate {
  #perMs = 0;
  #at = 0;

  /** Adds `amount`, and returns the average per millisecond. */
  add(amount: number, now: number): number {
    this.#perMs = this.#perMs * Math.exp((this.#at - now) / memoryMs) + amount / memoryMs;
    this.#at = now;
    return this.#perMs;
  }
}
