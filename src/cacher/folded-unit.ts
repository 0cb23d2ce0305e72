import { WatchBatch, type WatchEvent } from "../storage/event.ts";
import type { KeptPiece, KeptPieces } from "./kept-pieces.ts";

interface Piece extends KeptPiece {
  readonly batch: WatchBatch;
}

/**
 * A finished fold, cut into pieces that are one unit together: none has a revision but the last. All who
 * get it get the same pieces, so that these are encoded once. Pieces that nobody has taken for a while are
 * let go, and made again for who comes to them after all.
 */
export class FoldedUnit {
  /** What the unit closes with. */
  readonly revision: number;
  readonly events: readonly WatchEvent[];
  /** By weight. */
  readonly bytes: number;
  /**
   * Whether it says anything: events, or only that its revision is reached, where something has come and
   * gone or the cache was filled anew. Otherwise it need not be told.
   */
  readonly isNews: boolean;
  /** The index of each piece's first event. */
  readonly #starts: readonly number[];
  /** By their numbers. */
  readonly #pieces = new Map<string, Piece>();
  readonly #kept: KeptPieces;

  /** `maxBytes` is about how large a piece is. */
  constructor(
    events: readonly WatchEvent[],
    revision: number,
    isNews: boolean,
    maxBytes: number,
    kept: KeptPieces,
  ) {
    const starts = [0];
    let bytes = 0;
    let before = 0;
    for (let i = 0; i < events.length; i++) {
      if (bytes - before >= maxBytes) {
        starts.push(i);
        before = bytes;
      }
      bytes += events[i]?.weight ?? 0;
    }
    this.events = events;
    this.revision = revision;
    this.bytes = bytes;
    this.isNews = isNews;
    this.#starts = starts;
    this.#kept = kept;
  }

  /** Counted from 0. There is always one, and the last has the revision. */
  piece(number: number): WatchBatch {
    const at = String(number);
    const piece = this.#pieces.get(at) ?? this.#make(number, at);
    this.#kept.touch(piece);
    return piece.batch;
  }

  #make(number: number, at: string): Piece {
    const end = this.#starts[number + 1];
    const events = this.events.slice(this.#starts[number], end);
    const revision = end === undefined ? this.revision : undefined;
    const batch = new WatchBatch(revision, events, false, true);
    return { batch, weight: batch.weight, among: this.#pieces, at, isFresh: true };
  }
}
