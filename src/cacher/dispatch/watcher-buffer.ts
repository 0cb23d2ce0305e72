import type { WatchBatch } from "../../model/event.ts";
import type { BufferBounds } from "./buffer-sizing.ts";

/** The batches that a watcher's client has yet to read. */
export class WatcherBuffer {
  readonly #batches: WatchBatch[] = [];
  #bytes = 0;

  get length(): number {
    return this.#batches.length;
  }

  /** Estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the batch fits. An empty buffer has room for any batch. */
  hasRoom(batch: WatchBatch, bounds: BufferBounds): boolean {
    const { length } = this.#batches;
    if (length === 0) return true;
    return length < bounds.batches && this.#bytes + batch.estimatedBytes <= bounds.bytes;
  }

  put(batch: WatchBatch): void {
    this.#batches.push(batch);
    this.#bytes += batch.estimatedBytes;
  }

  /** Replaces the last batch if that is a bookmark, too. Returns whether it was. */
  replaceBookmark(bookmark: WatchBatch): boolean {
    const last = this.#batches.length - 1;
    if (last < 0 || this.#batches[last]?.events.length !== 0) return false;
    this.#batches[last] = bookmark;
    return true;
  }

  take(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    if (batch !== undefined) this.#bytes -= batch.estimatedBytes;
    return batch;
  }

  clear(): void {
    this.#batches.length = 0;
    this.#bytes = 0;
  }
}
