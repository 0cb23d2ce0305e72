import { WatchBatch, WatchEvent } from "../storage/event.ts";
import { type StoredObject, weight } from "../storage/object.ts";
import type { ListResult } from "../storage/storage.ts";
import type { Filter } from "./filter.ts";
import { costOf, type KeptPiece, KeptPieces } from "./kept-pieces.ts";

/** The state that a watch begins with, handed out piece by piece as its reader takes it. */
export interface InitialState {
  /** The next piece; undefined when there is none now. The last one says `initialEventsEnd`. */
  next(): WatchBatch | undefined;
}

/** How many objects are looked at for one piece, which is empty if none of them matches. */
const maxScanned = 50_000;

/** A part of a state. */
interface Piece extends KeptPiece {
  readonly batch: WatchBatch;
  /** The key that the next piece begins after; undefined if this is the last. */
  readonly last: string | undefined;
}

/**
 * The state at one revision as it looks through one filter, cut into pieces. All who begin with it get
 * the same pieces, so that these are put together and encoded once, however many come at once. Pieces
 * that nobody has taken for a while are let go, and made again for who comes to them after all.
 */
export class StateSnapshot {
  readonly revision: number;
  readonly #objects: (startAfter: string | undefined) => Iterable<StoredObject>;
  readonly #filter: Filter;
  readonly #maxBytes: number;
  /** By the key that they begin after; empty for the first. */
  readonly #pieces = new Map<string, Piece>();
  readonly #kept: KeptPieces;

  /** `objects` yields those after a key, in key order. `maxBytes` is about how large a piece is. */
  constructor(
    revision: number,
    objects: (startAfter: string | undefined) => Iterable<StoredObject>,
    filter: Filter,
    maxBytes: number,
    kept: KeptPieces = new KeptPieces(),
  ) {
    this.#kept = kept;
    this.revision = revision;
    this.#objects = objects;
    this.#filter = filter;
    this.#maxBytes = maxBytes;
  }

  /** Whether it is of several pieces. */
  get isLarge(): boolean {
    return this.piece(undefined).last !== undefined;
  }

  piece(startAfter: string | undefined): Piece {
    const at = startAfter ?? "";
    const piece = this.#pieces.get(at) ?? this.#make(startAfter, at);
    this.#kept.touch(piece);
    return piece;
  }

  #make(startAfter: string | undefined, at: string): Piece {
    const among = this.#pieces;
    const events: WatchEvent[] = [];
    let bytes = 0;
    let scanned = 0;
    for (const object of this.#objects(startAfter)) {
      scanned++;
      if (this.#filter.matches(object)) {
        events.push(new WatchEvent("ADDED", object, undefined));
        bytes += weight(object);
      }
      if (bytes >= this.#maxBytes || scanned === maxScanned) {
        const batch = new WatchBatch(undefined, events);
        return { batch, cost: costOf(bytes), last: object.key, among, at, isFresh: true };
      }
    }
    const batch = new WatchBatch(this.revision, events, true);
    return { batch, cost: costOf(bytes), last: undefined, among, at, isFresh: true };
  }
}

/** From a snapshot of the cache. */
export class SnapshotState implements InitialState {
  #snapshot: StateSnapshot | undefined;
  #startAfter: string | undefined;

  constructor(snapshot: StateSnapshot) {
    this.#snapshot = snapshot;
  }

  next(): WatchBatch | undefined {
    if (this.#snapshot === undefined) return undefined;
    const { batch, last } = this.#snapshot.piece(this.#startAfter);
    this.#startAfter = last;
    if (last === undefined) this.#snapshot = undefined;
    return batch;
  }
}

/**
 * From the storage itself, page by page, where the cache is not new enough in time. The next page is
 * asked for when the one before has been taken.
 */
export class PagedState implements InitialState {
  readonly #list: (startAfter: string) => Promise<ListResult>;
  readonly #onReady: (failure?: unknown) => void;
  #page: ListResult | undefined;

  /**
   * `first` is the page that is there already, `list` brings those after. `onReady` is told when one
   * has come, or why none will.
   */
  constructor(
    first: ListResult,
    list: (startAfter: string) => Promise<ListResult>,
    onReady: (failure?: unknown) => void,
  ) {
    this.#page = first;
    this.#list = list;
    this.#onReady = onReady;
  }

  next(): WatchBatch | undefined {
    const page = this.#page;
    if (page === undefined) return undefined;
    this.#page = undefined;
    const events = page.items.map((object) => new WatchEvent("ADDED", object, undefined));
    if (page.next === undefined) return new WatchBatch(page.revision, events, true);
    this.#list(page.next).then(
      (following) => {
        this.#page = following;
        this.#onReady();
      },
      (error: unknown) => this.#onReady(error),
    );
    return new WatchBatch(undefined, events);
  }
}
