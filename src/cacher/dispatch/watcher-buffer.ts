import type { WatchBatch } from "../../model/event.ts";
import type { BufferBounds } from "./buffer-sizing.ts";

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
