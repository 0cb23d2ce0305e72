import type { WatchBatch } from "../storage/event.ts";

/** How many bytes of pieces are kept, all snapshots and folds together. */
const keptBytes = 32 * 1024 * 1024;

/** A part of a state or of a fold, as it looks through one filter. */
export interface KeptPiece {
  readonly batch: WatchBatch;
  /** Where it is kept, and under which key. */
  readonly among: Map<string, KeptPiece>;
  readonly at: string;
  /** Whether anyone has taken it since pieces were last let go. */
  isFresh: boolean;
}

/**
 * The pieces of all snapshots and folds that may yet be shared, within one bound: however many streams are
 * amidst one, and however slowly they take it, what is kept for them all does not grow.
 */
export class KeptPieces {
  /** The one taken longest ago first. */
  readonly #pieces = new Set<KeptPiece>();
  #bytes = 0;

  /** The piece has been taken just now. */
  touch(piece: KeptPiece): void {
    piece.isFresh = true;
    if (!this.#pieces.delete(piece)) {
      piece.among.set(piece.at, piece);
      this.#bytes += cost(piece);
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
    piece.among.delete(piece.at);
    this.#bytes -= cost(piece);
  }
}

/** Its events and, as soon as someone sends it, its frames, which are about as large. */
function cost({ batch }: KeptPiece): number {
  return 2 * batch.weight;
}
