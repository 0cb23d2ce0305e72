import type { WatcherBounds } from "./watcher-bounds.ts";

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
