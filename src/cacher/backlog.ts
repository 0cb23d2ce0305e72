import type { Filter } from "./filter.ts";
import { Fold } from "./fold.ts";
import { FoldedUnit } from "./folded-unit.ts";
import type { FoldsParts } from "./folds.ts";
import type { HistoryNode } from "./history.ts";
import { inSlices } from "./sliced.ts";

/** How many events of history are folded between two looks at the clock. */
const eventsPerStep = 256;
/** For how long a finished unit is handed to those who come later, in milliseconds. */
const sharedForMs = 1_000;

/** A unit, and the node of history that it leads to. */
export interface FinishedFold {
  readonly unit: FoldedUnit;
  readonly level: HistoryNode;
}

/** Whoever waits for a backlog to be folded. */
export interface BacklogReader {
  /** There is something now. */
  poke(): void;
}

/**
 * What LATEST_STATE watchers with the same filter have not been sent since they stopped at the same node of
 * history. They share it: its fold is made once, and so is the unit that it is told as.
 *
 * It does not hold the node that it begins after, but the one up to which everything is in its fold. So
 * what lies between is garbage, and folding more of history is what lets go of it.
 */
export class Backlog {
  readonly filter: Filter;
  /** The sequence of the node that it begins after. */
  readonly after: number;
  readonly #parts: FoldsParts;
  readonly #fold = new Fold();
  readonly #awaiting = new Set<BacklogReader>();
  #reached: HistoryNode;
  /** Whether anything has happened that those who are behind have to be told of. */
  #isNews = false;
  /** Whether something is being folded right now, in slices. */
  #folding = false;
  #finished: (FinishedFold & { readonly at: number }) | undefined;
  /** How many watchers are behind with it. */
  holders = 0;

  constructor(filter: Filter, after: HistoryNode, parts: FoldsParts) {
    this.filter = filter;
    this.after = after.sequence;
    this.#reached = after;
    this.#parts = parts;
  }

  /** Everything up to this node is folded. */
  get reached(): HistoryNode {
    return this.#reached;
  }

  /** How many objects the fold holds something of. */
  get objects(): number {
    return this.#fold.size;
  }

  /** By weight. */
  get bytes(): number {
    return this.#fold.bytes;
  }

  /** Whether there is no use in keeping it any longer for those who may come. */
  get isStale(): boolean {
    return this.holders === 0 && !this.#folding && !this.#isFresh;
  }

  /**
   * Everything up to where the dispatcher is, or was a moment ago. Undefined if to fold it takes longer
   * than a slice: then `reader` is poked when that is done.
   */
  finish(reader: BacklogReader): FinishedFold | undefined {
    if (!this.#isFresh && !this.#folding) inSlices(this.#parts.clock, this.#finish());
    if (!this.#folding) return this.#finished;
    this.#awaiting.add(reader);
    return undefined;
  }

  /** The reader does not wait any longer. Harmless if it did not. */
  leave(reader: BacklogReader): void {
    this.#awaiting.delete(reader);
  }

  /** Folds everything up to where the dispatcher is, so that nothing before that is held any longer. */
  *catchUp(): Generator<void, void, void> {
    if (this.#folding) return;
    this.#folding = true;
    this.#finished = undefined;
    yield* this.#foldUpTo(this.#parts.dispatcher.position);
    this.#folding = false;
    yield* this.#pokeAll();
  }

  get #isFresh(): boolean {
    const { clock } = this.#parts;
    return this.#finished !== undefined && clock.now() - this.#finished.at <= sharedForMs;
  }

  *#finish(): Generator<void, void, void> {
    const { dispatcher, clock, pieceBytes, kept } = this.#parts;
    // Taken together: nothing at or below the revision comes after the position.
    const { position: level, revision } = dispatcher;
    this.#folding = true;
    this.#finished = undefined;
    yield* this.#foldUpTo(level);
    const unit = new FoldedUnit(revision, this.#isNews, pieceBytes, kept);
    yield* this.#fold.tell(unit);
    this.#finished = { unit, level, at: clock.now() };
    this.#folding = false;
    yield* this.#pokeAll();
  }

  *#foldUpTo(level: HistoryNode): Generator<void, void, void> {
    let steps = 0;
    while (this.#reached.sequence < level.sequence) {
      const { next } = this.#reached;
      if (next === undefined) throw new Error("History ends before where the dispatcher is.");
      this.#take(next);
      this.#reached = next;
      if (++steps % eventsPerStep === 0) yield;
    }
  }

  #take(node: HistoryNode): void {
    if (node.event === undefined) {
      // Here the cache was filled anew, and resume points from before are no longer taken.
      this.#isNews = true;
      return;
    }
    const { type, object } = node.event;
    if (!this.filter.includes(object.key)) return;
    const event = this.filter.select(node);
    if (event !== undefined) {
      // Also if nothing comes of it: what comes next is then after the revision that is told.
      this.#isNews = true;
      this.#fold.add(event);
    }
    if (type === "DELETED") this.#fold.gone(object.key);
  }

  *#pokeAll(): Generator<void, void, void> {
    // They may come to wait again when they are told.
    const readers = [...this.#awaiting];
    this.#awaiting.clear();
    for (const reader of readers) {
      reader.poke();
      yield;
    }
  }
}
