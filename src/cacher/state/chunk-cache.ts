/** How many bytes of pieces are kept, all folds and lists together. */
const maxBytes = 32 * 1024 * 1024;

/** A part of a fold or of a list, as it looks through one filter. */
export interface ChunkCacheEntry {
  /** What it takes to keep it, in bytes: see `costOf`. */
  readonly cost: number;
  /** Where it is kept, and under which key. */
  readonly owner: {
    set(at: string, entry: unknown): unknown;
    delete(at: string, entry: unknown): boolean;
  };
  readonly at: string;
  /** Whether anyone has taken it since pieces were last let go. */
  isFresh: boolean;
}

/**
 * The pieces of all folds and lists that may yet be shared, within one bound: however many
 * streams are amidst one, and however slowly they take it, what is kept for them all does not grow.
 */
export class ChunkCache {
  /** The one taken longest ago first. */
  readonly #entries = new Set<ChunkCacheEntry>();
  #bytes = 0;

  /** What they take, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The piece has been taken just now. */
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

  /** Lets go of what nobody has taken since this was last called. */
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
 * What objects of this weight take, with their encoding, which is about as large and kept with them as soon as
 * someone sends it, and with what is around them.
 */
export function costOf(estimatedBytes: number): number {
  return 2 * estimatedBytes + 200;
}
