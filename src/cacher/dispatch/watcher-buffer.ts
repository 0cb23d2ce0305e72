import type { WatchBatch } from "../../model/event.ts";
import type { BufferBounds } from "./buffer-sizing.ts";

/** The batches that wait for a watcher's reader. */
export class WatcherBuffer {
  readonly #batches: WatchBatch[] = [];
  #bytes = 0;

  get length(): number {
    return this.#batches.length;
  }

  /** By weight. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the batch may be put in: one always may be. */
  hasRoom(batch: WatchBatch, bounds: BufferBounds): boolean {
    const { length } = this.#batches;
    if (length === 0) return true;
    return length < bounds.batches && this.#bytes + batch.estimatedBytes <= bounds.bytes;
  }

  put(batch: WatchBatch): void {
    this.#batches.push(batch);
    this.#bytes += batch.estimatedBytes;
  }

  /** Puts a bookmark in place of the last batch if that is one, too: the newer is as good as both. */
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
