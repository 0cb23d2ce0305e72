/** Maximum memory of all chunks, of lists and of coalesced batches together, in bytes. */
const maxBytes = 32 * 1024 * 1024;

/** A chunk of a list or of a coalesced batch, for one filter. */
export interface ChunkCacheEntry {
  /** Estimated memory, in bytes: see `costOf`. */
  readonly cost: number;
  /** The collection that holds it. */
  readonly owner: {
    set(at: string, entry: unknown): unknown;
    delete(at: string, entry: unknown): boolean;
  };
  /** Its key in `owner`. */
  readonly at: string;
  /** Whether a reader has used it since the last `expire`. */
  isFresh: boolean;
}

/**
 * The chunks of all lists and coalesced batches that readers may share, within one bound: the memory does not grow
 * with the number of streams that read them, nor with the time that these take.
 */
export class ChunkCache {
  /** The least recently used first. */
  readonly #entries = new Set<ChunkCacheEntry>();
  #bytes = 0;

  /** Memory of all chunks, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A reader uses the chunk. Adds it if it is not cached, and evicts the least recently used ones above 32 MiB. */
  touch(entry: ChunkCacheEntry): void {
    entry.isFresh = true;
    if (!this.#entries.delete(entry)) {
      entry.owner.set(entry.at, entry);
      this.#bytes += entry.cost;
    }
    this.#entries.add(entry);
    for (const oldest of this.#entries) {
      if (this.#bytes <= maxBytes) return;
      this.#evict(oldest);
    }
  }

  /** Evicts all chunks that no reader has used since the last call. */
  expire(): void {
    for (const entry of this.#entries) {
      if (entry.isFresh) entry.isFresh = false;
      else this.#evict(entry);
    }
  }

  #evict(entry: ChunkCacheEntry): void {
    this.#entries.delete(entry);
    entry.owner.delete(entry.at, entry);
    this.#bytes -= entry.cost;
  }
}

/**
 * Returns the memory of objects with these estimated bytes, in bytes: with overhead, and with their encoding, which is
 * about as large as they are and cached with them once it is sent.
 */
export function costOf(estimatedBytes: number): number {
  return 2 * estimatedBytes + 200;
}
