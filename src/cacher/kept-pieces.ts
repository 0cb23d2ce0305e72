import type { WatchBatch } from "../storage/event.ts";

/** How many bytes of pieces are kept, all snapshots together. */
const keptBytes = 32 * 1024 * 1024;

/** A part of a state, as it looks through one filter. */
export interface Piece {
  readonly batch: WatchBatch;
  /** Where it is kept, and under which key. */
  readonly among: Map<string, Piece>;
  readonly at: string;
  /** Whether anyone has taken it since pieces were last let go. */
  isFresh: boolean;
  /** The key that the next piece begins after; undefined if this is the last. */
  readonly last: string | undefined;
}

/**
 * The pieces of all snapshots that may yet be shared, within one bound: however many streams are amidst a
 * state, and however slowly they take it, what is kept for them all does not grow.
 */
export class KeptPieces {
  /** The one taken longest ago first. */
  readonly #pieces = new Set<Piece>();
  #bytes = 0;

  /** The piece has been taken just now. */
  touch(piece: Piece): void {
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

  #letGo(piece: Piece): void {
    this.#pieces.delete(piece);
    piece.among.delete(piece.at);
    this.#bytes -= cost(piece);
  }
}

/** Its events and, as soon as someone sends it, its frames, which are about as large. */
function cost({ batch }: Piece): number {
  return 2 * batch.weight;
}
