import type { PastEvents } from "./past-events.ts";

/** An amount of events. */
export interface Room {
  readonly events: number;
  /** Sum of the estimated bytes. */
  readonly bytes: number;
}

/** The size of the next chunk of the past. */
export interface ChunkSize {
  /** Number of concurrent watches. */
  readonly watches: number;
  /** Number of revisions for each of them. */
  readonly revisions: number;
}

/**
 * Maximum number of watches per chunk. Their responses have to be read within the 100 ms until etcd's next pass, which
 * serves the watches that are still open again.
 */
const maxWatches = 16;
/**
 * Maximum number of revisions with events of the resource per watch: etcd sends an unsynced watch 1,000 at a time, and
 * a watch that needs more needs another pass.
 */
const watchRevisions = 950;
/** Target number of events of one chunk, and of their estimated bytes. */
const chunkEvents = 16_000;
const chunkBytes = 16 * 1024 * 1024;
/** Number of revisions of the first chunk, which is small as the number of events per revision is unknown. */
const firstRevisions = 50;
/** Maximum growth of the number of revisions from one chunk to the next. */
const growth = 4;

/**
 * Above this many estimated bytes for each watch, four watches read the chunk: half of the response that a storage
 * accepts from each of 16 watches (`WatchRequest.concurrent`), since responses differ in size. Of 4 it accepts four
 * times as much, and a chunk for more than one watch has at most `chunkBytes`: half of that, for two.
 */
const shareOfSixteen = 2 * 1024 * 1024;

/** Maximum estimated bytes of the events of one chunk. */
export const maxChunkBytes = 2 * chunkBytes;

/** Adapts, chunk by chunk, how many revisions of the past to request at once. */
export class ChunkSizing {
  #revisions = firstRevisions / growth;
  /** Averages of the last chunk per revision of the store: revisions with events, events, bytes. */
  #own = 1;
  #events = 1;
  #bytes = 0;

  /** Returns the size of the next chunk; `room` is what the target still has room for. */
  next(left: number, room: Room): ChunkSize {
    const bytes = Math.min(chunkBytes, room.bytes);
    // The response to one watch is not read in parts.
    const most = atLeastOne(Math.min(watchRevisions / this.#own, maxChunkBytes / this.#bytes));
    const events = Math.max(most, Math.min(chunkEvents, room.events) / this.#events);
    const all = atLeastOne(
      Math.min(left, this.#revisions * growth, events, Math.max(most, bytes / this.#bytes)),
    );
    const watches = this.#watches(all, most);
    return { watches, revisions: Math.min(most, Math.ceil(all / watches)) };
  }

  /** The number of watches for `all` revisions, of at most `most` each. */
  #watches(all: number, most: number): number {
    const wanted = Math.min(maxWatches, Math.ceil(all / most));
    const bytes = Math.min(most, all / wanted) * this.#bytes;
    return wanted > 4 && bytes > shareOfSixteen ? 4 : wanted;
  }

  /** Records a chunk that was read. */
  record({ after, upTo, events, bytes }: PastEvents): void {
    this.#revisions = upTo - after;
    let own = 0;
    let last = 0;
    for (const { revision } of events) {
      if (revision !== last) own++;
      last = revision;
    }
    // 0 would mean that older revisions are as empty.
    this.#own = Math.max(1, own) / this.#revisions;
    this.#events = Math.max(1, events.length) / this.#revisions;
    this.#bytes = bytes / this.#revisions;
  }

  /** Not even the newest part of a chunk fitted. Returns whether a smaller chunk can be requested. */
  tooLarge({ watches, revisions }: ChunkSize): boolean {
    if (watches === 1 && revisions === 1) return false;
    this.#revisions = atLeastOne(revisions / 16) / growth;
    return true;
  }
}

function atLeastOne(revisions: number): number {
  return Math.max(1, Math.floor(revisions));
}
