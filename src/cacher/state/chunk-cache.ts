/** How many bytes of pieces are kept, all folds and lists together. */
const keptBytes = 32 * 1024 * 1024;

/** A part of a fold or of a list, as it looks through one filter. */
export interface KeptPiece {
  /** What it takes to keep it, in bytes: see `costOf`. */
  readonly cost: number;
  /** Where it is kept, and under which key. */
  readonly among: {
    set(at: string, piece: unknown): unknown;
    delete(at: string, piece: unknown): boolean;
  };
  readonly at: string;
  /** Whether anyone has taken it since pieces were last let go. */
  isFresh: boolean;
}

/**
 * The pieces of all folds and lists that may yet be shared, within one bound: however many
 * streams are amidst one, and however slowly they take it, what is kept for them all does not grow.
 */
export class KeptPieces {
  /** The one taken longest ago first. */
  readonly #pieces = new Set<KeptPiece>();
  #bytes = 0;

  /** What they take, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The piece has been taken just now. */
  touch(piece: KeptPiece): void {
    piece.isFresh = true;
    if (!this.#pieces.delete(piece)) {
      piece.among.set(piece.at, piece);
      this.#bytes += piece.cost;
    }
    this.#pieces.add(piece);
    for (const oldest of this.#pieces) {
      if (this.#bytes <= keptBytes) return;
      this.#letGo(oldest);
    }
  }

  /** Lets go of what nobody has taken since this was last called. */
  expire(): void {
    for (const piece of this.#pieces) {
      if (piece.isFresh) piece.isFresh = false;
      else this.#letGo(piece);
    }
  }

  #letGo(piece: KeptPiece): void {
    this.#pieces.delete(piece);
    piece.among.delete(piece.at, piece);
    this.#bytes -= piece.cost;
  }
}

/**
 * What objects of this weight take, with their encoding, which is about as large and kept with them as soon as
 * someone sends it, and with what is around them.
 */
export function costOf(weight: number): number {
  return 2 * weight + 200;
}
