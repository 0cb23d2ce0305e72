import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import { type ChunkCache, type ChunkCacheEntry, costOf } from "../state/chunk-cache.ts";

interface BatchChunk extends ChunkCacheEntry {
  readonly batch: WatchBatch;
}

/**
 * A finished fold, cut into pieces that are one unit together: none has a revision but the last. All who
 * get it get the same pieces, so that these are encoded once. Pieces that nobody has taken for a while are
 * let go, and made again for who comes to them after all.
 */
export class CoalescedBatch {
  /** What the unit closes with. */
  readonly revision: number;
  /**
   * Whether it says anything: events, or only that its revision is reached, where something has come and
   * gone or the cache was filled anew. Otherwise it need not be told.
   */
  readonly hasChanges: boolean;
  readonly #events: WatchEvent[] = [];
  #bytes = 0;
  /** The index of each piece's first event, and how many bytes were before the last of them. */
  readonly #starts = [0];
  #bytesBefore = 0;
  /** By their numbers. */
  readonly #chunks = new Map<string, BatchChunk>();
  readonly #maxBytes: number;
  readonly #chunkCache: ChunkCache;

  /** Empty at first. `maxBytes` is about how large a piece is. */
  constructor(revision: number, hasChanges: boolean, maxBytes: number, chunkCache: ChunkCache) {
    this.revision = revision;
    this.hasChanges = hasChanges;
    this.#maxBytes = maxBytes;
    this.#chunkCache = chunkCache;
  }

  get events(): readonly WatchEvent[] {
    return this.#events;
  }

  /** By weight. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Puts an event at its end. Only before anyone gets it. */
  push(event: WatchEvent): void {
    if (this.#bytes - this.#bytesBefore >= this.#maxBytes) {
      this.#starts.push(this.#events.length);
      this.#bytesBefore = this.#bytes;
    }
    this.#events.push(event);
    this.#bytes += event.estimatedBytes;
  }

  /** Counted from 0. There is always one, and the last has the revision. */
  chunk(number: number): WatchBatch {
    const at = String(number);
    const chunk = this.#chunks.get(at) ?? this.#make(number, at);
    this.#chunkCache.touch(chunk);
    return chunk.batch;
  }

  #make(number: number, at: string): BatchChunk {
    const end = this.#starts[number + 1];
    const events = this.#events.slice(this.#starts[number], end);
    const revision = end === undefined ? this.revision : undefined;
    const batch = new WatchBatch(revision, events, false, true);
    return { batch, cost: costOf(batch.estimatedBytes), owner: this.#chunks, at, isFresh: true };
  }
}
