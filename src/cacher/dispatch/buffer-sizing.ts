import type { WatcherBounds } from "./watcher-bounds.ts";

/** How much a watcher's input holds at the most. */
export interface BufferBounds {
  readonly batches: number;
  /** By weight; one batch always has room. */
  readonly bytes: number;
}

/** The pause of a reader that an input is to bridge, in milliseconds. */
const bridgedMs = 1_000;
/** How long a rate is remembered: after so many milliseconds without anything a third of it is left. */
const memoryMs = 10_000;

/**
 * How large the inputs of live watchers may become: large enough for what comes in a second at the rate of
 * late, so that a reader who pauses for that long need not go back to history, and not larger, as there
 * may be many. The Kubernetes API server sizes the channels of its watchers by the same rule.
 *
 * A watcher whose stream an index narrows, to one key or to one value of a field, gets only its share of
 * what comes. Its input is always of the least size.
 */
export class BufferSizing {
  readonly #bounds: WatcherBounds;
  readonly #batches = new DecayingRate();
  readonly #bytes = new DecayingRate();
  readonly indexed: BufferBounds;
  #unindexed: BufferBounds;

  constructor(bounds: WatcherBounds) {
    this.#bounds = bounds;
    this.indexed = this.#sized(0, 0);
    this.#unindexed = this.indexed;
  }

  /** What the inputs of all others may hold, as of the last `record`. */
  get unindexed(): BufferBounds {
    return this.#unindexed;
  }

  /** A round of events has come, which is of so many bytes. `now` is in the clock's milliseconds. */
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

/** An average in which what is long ago counts ever less. */
class DecayingRate {
  #perMs = 0;
  #at = 0;

  /** Counts `amount` in, and returns how much came per millisecond. */
  add(amount: number, now: number): number {
    this.#perMs = this.#perMs * Math.exp((this.#at - now) / memoryMs) + amount / memoryMs;
    this.#at = now;
    return this.#perMs;
  }
}
