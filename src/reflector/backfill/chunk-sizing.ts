import type { PastEvents } from "./past-events.ts";

/** How much of something there is, or may be. */
export interface Room {
  readonly events: number;
  /** By weight. */
  readonly bytes: number;
}

/** How much of the past to ask for next. */
export interface ChunkSize {
  /** How many watches together. */
  readonly watches: number;
  /** How many revisions each of them is for. */
  readonly revisions: number;
}

/**
 * Maximum watches of one piece. What etcd sends for them has to be read within the 100 ms until its next pass,
 * or that serves those again which are not closed yet.
 */
const maxWatches = 16;
/**
 * How many revisions with events of the resource a watch is for, at most: etcd sends an old watch 1,000 at a
 * time, and a watch that needs more needs another pass.
 */
const watchRevisions = 950;
/** How many events one piece is meant to have at most, and how many bytes of them, by weight. */
const chunkEvents = 16_000;
const chunkBytes = 16 * 1024 * 1024;
/** The first piece is small, as nobody knows how much a revision has written. */
const firstRevisions = 200;
/** How many times as many revisions a piece may have as the one before. */
const growth = 4;

/** More than this, by weight, is not held of one piece. */
export const maxChunkBytes = 2 * chunkBytes;

/** Finds out, piece by piece, how many revisions of the past to ask for at once. */
export class ChunkSizing {
  #revisions = firstRevisions / growth;
  /** For each revision of the store, as the last piece had them: revisions with events, events, bytes. */
  #own = 1;
  #events = 1;
  #bytes = 0;

  /** For what is left to read, of which there is still this much room. */
  next(left: number, room: Room): ChunkSize {
    const bytes = Math.min(chunkBytes, room.bytes);
    // What etcd sends for one watch in any case is not read in parts.
    const most = atLeastOne(Math.min(watchRevisions / this.#own, maxChunkBytes / this.#bytes));
    const events = Math.max(most, Math.min(chunkEvents, room.events) / this.#events);
    const all = atLeastOne(
      Math.min(left, this.#revisions * growth, events, Math.max(most, bytes / this.#bytes)),
    );
    const watches = Math.min(maxWatches, Math.ceil(all / most));
    return { watches, revisions: Math.min(most, Math.ceil(all / watches)) };
  }

  /** A piece came. */
  record({ after, upTo, events, bytes }: PastEvents): void {
    this.#revisions = upTo - after;
    let own = 0;
    let last = 0;
    for (const { revision } of events) {
      if (revision !== last) own++;
      last = revision;
    }
    // 0 would promise that what is older is as empty.
    this.#own = Math.max(1, own) / this.#revisions;
    this.#events = Math.max(1, events.length) / this.#revisions;
    this.#bytes = bytes / this.#revisions;
  }

  /** Not even its newest part came whole, as it was too large. Returns whether a smaller one can be asked for. */
  tooLarge({ watches, revisions }: ChunkSize): boolean {
    if (watches === 1 && revisions === 1) return false;
    this.#revisions = atLeastOne(revisions / 16) / growth;
    return true;
  }
}

function atLeastOne(revisions: number): number {
  return Math.max(1, Math.floor(revisions));
}
