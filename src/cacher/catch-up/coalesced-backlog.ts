import type { WatchFanoutError } from "../../base/errors.ts";
import type { Pokable, Steps } from "../../base/time-slice-queue.ts";
import type { HistoryNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { FoldsParts } from "./coalesced-backlogs.ts";
import { FoldedUnit } from "./coalesced-batch.ts";
import { Fold } from "./coalescer.ts";

/** How many requirements events are held against between two looks at the clock: one for an event without. */
const costPerStep = 256;
/** For how long a finished unit is handed to those who come later, in milliseconds. */
const sharedForMs = 1_000;

/** A unit, and the node of history that it leads to. */
export interface FinishedFold {
  readonly unit: FoldedUnit;
  readonly level: HistoryNode;
}

/** Whoever a backlog is held for, and who waits for it to be folded. */
export interface BacklogReader extends Pokable {
  /** More is kept for all who are behind than may be. */
  fail(error: WatchFanoutError): void;
}

export interface BacklogParts extends FoldsParts {
  /** Is called when more has been folded. */
  readonly onFolded: () => void;
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
  readonly #parts: BacklogParts;
  readonly #fold: Fold;
  readonly #holders = new Set<BacklogReader>();
  readonly #awaiting = new Set<BacklogReader>();
  #reached: HistoryNode;
  /** Whether anything has happened that those who are behind have to be told of. */
  #isNews = false;
  /** Whether something is being folded, or is to be as soon as it is its turn. */
  #folding = false;
  /** Whether a reader has come for it, since that began. */
  #wanted = false;
  #finished: (FinishedFold & { readonly at: number }) | undefined;

  constructor(filter: Filter, after: HistoryNode, parts: BacklogParts) {
    this.filter = filter;
    this.after = after.sequence;
    this.#fold = new Fold(after.revision);
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

  /** Those who are behind with it. */
  get holders(): ReadonlySet<BacklogReader> {
    return this.#holders;
  }

  /** Whether there is no use in keeping it any longer for those who may come. */
  get isStale(): boolean {
    return this.#holders.size === 0 && !this.#folding && !this.#isFresh;
  }

  held(by: BacklogReader): void {
    this.#holders.add(by);
  }

  /** Who held it does so no longer, and does not wait either. Harmless if it did not. */
  released(by: BacklogReader): void {
    this.#holders.delete(by);
    this.#awaiting.delete(by);
  }

  /**
   * Everything up to where the dispatcher is, or was a moment ago. Undefined if that takes a while, as it is
   * much or others come first: then `reader` is poked when it is done.
   */
  finish(reader: BacklogReader): FinishedFold | undefined {
    if (this.#isFresh) return this.#finished;
    this.#wanted = true;
    this.#beginToFold();
    if (!this.#folding) return this.#finished;
    this.#awaiting.add(reader);
    return undefined;
  }

  /** Has everything up to where the dispatcher is folded, so that nothing before that is held any longer. */
  catchUp(): void {
    this.#beginToFold();
  }

  get #isFresh(): boolean {
    const { clock } = this.#parts;
    return this.#finished !== undefined && clock.now() - this.#finished.at <= sharedForMs;
  }

  #beginToFold(): void {
    if (this.#folding) return;
    this.#folding = true;
    this.#finished = undefined;
    this.#parts.queue.add(this.#foldAll());
  }

  *#foldAll(): Steps {
    // Taken together: nothing at or below the revision comes after the position.
    const { position: level, revision } = this.#parts.dispatcher;
    yield* this.#foldUpTo(level);
    if (this.#wanted) yield* this.#makeUnit(revision, level);
    this.#folding = false;
    this.#parts.onFolded();
    yield* this.#pokeAll();
  }

  *#foldUpTo(level: HistoryNode): Steps {
    let sinceYield = 0;
    while (this.#reached.sequence < level.sequence) {
      // Whoever needed it may have gone since.
      if (this.#holders.size === 0) return;
      const { next } = this.#reached;
      if (next === undefined) throw new Error("History ends before where the dispatcher is.");
      this.#take(next);
      this.#reached = next;
      sinceYield += this.filter.cost;
      if (sinceYield < costPerStep) continue;
      sinceYield = 0;
      yield;
    }
  }

  *#makeUnit(revision: number, level: HistoryNode): Steps {
    if (this.#holders.size === 0) return;
    const { clock, pieceBytes, kept } = this.#parts;
    const unit = new FoldedUnit(revision, this.#isNews, pieceBytes, kept);
    yield* this.#fold.tell(unit);
    this.#finished = { unit, level, at: clock.now() };
    this.#wanted = false;
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

  *#pokeAll(): Steps {
    // They may come to wait again when they are told.
    const readers = [...this.#awaiting];
    this.#awaiting.clear();
    for (const reader of readers) {
      reader.poke();
      yield;
    }
  }
}
