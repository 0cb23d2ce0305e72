import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import { type ChunkCache, type ChunkCacheEntry, costOf } from "../state/chunk-cache.ts";

interface BatchChunk extends ChunkCacheEntry {
  readonly batch: WatchBatch;
}

/**
 * A coalesced backlog as an atomic batch, in chunks of which only the last has a revision. All its watchers get the
 * same chunks, so that each is encoded once. The chunk cache evicts chunks that no watcher has taken for a while;
 * they are built again on demand.
 */
export class CoalescedBatch {
  /** The resume point after its last chunk. */
  readonly revision: number;
  /**
   * Whether it has to be delivered: it has events, or moves the resume point past events that cancelled out or past
   * a relist.
   */
  readonly hasChanges: boolean;
  readonly #events: WatchEvent[] = [];
  #bytes = 0;
  /** Index of the first event of each chunk, and the bytes before the last chunk. */
  readonly #starts = [0];
  #bytesBefore = 0;
  /** By chunk number. */
  readonly #chunks = new Map<string, BatchChunk>();
  readonly #maxBytes: number;
  readonly #chunkCache: ChunkCache;

  /** Empty at first. `maxBytes` is the approximate size of a chunk. */
  constructor(revision: number, hasChanges: boolean, maxBytes: number, chunkCache: ChunkCache) {
    this.revision = revision;
    this.hasChanges = hasChanges;
    this.#maxBytes = maxBytes;
    this.#chunkCache = chunkCache;
  }

  get events(): readonly WatchEvent[] {
    return this.#events;
  }

  /** Estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Appends an event. Only before the first chunk is taken. */
  push(event: WatchEvent): void {
    if (this.#bytes - this.#bytesBefore >= this.#maxBytes) {
      this.#starts.push(this.#events.length);
      this.#bytesBefore = this.#bytes;
    }
    this.#events.push(event);
    this.#bytes += event.estimatedBytes;
  }

  /** Returns the chunk of this number, counted from 0. There is at least one; the last has the revision. */
  chunk(number: number): WatchBatch {
    const at = String(number);
    const chunk = this.#chunks.get(at) ?? this.#build(number, at);
    this.#chunkCache.touch(chunk);
    return chunk.batch;
  }

  #build(number: number, at: string): BatchChunk {
    const end = this.#starts[number + 1];
    const events = this.#events.slice(this.#starts[number], end);
    const revision = end === undefined ? this.revision : undefined;
    const batch = new WatchBatch(revision, events, false, true);
    return { batch, cost: costOf(batch.estimatedBytes), owner: this.#chunks, at, isFresh: true };
  }
}
