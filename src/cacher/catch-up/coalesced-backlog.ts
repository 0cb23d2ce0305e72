import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { Notifiable, Steps, TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { ChunkCache } from "../state/chunk-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CoalescedBatch } from "./coalesced-batch.ts";
import { Coalescer } from "./coalescer.ts";

/** How many requirements events are held against between two looks at the clock: one for an event without. */
const costPerStep = 256;
/** For how long a finished unit is handed to those who come later, in milliseconds. */
const sharedForMs = 1_000;

/** A unit, and the node of history that it leads to. */
export interface FinishedBacklog {
  readonly batch: CoalescedBatch;
  readonly target: EventNode;
}

/** Whoever a backlog is held for, and who waits for it to be folded. */
export interface BacklogReader extends Notifiable {
  /** More is kept for all who are behind than may be. */
  fail(error: WatchFanoutError): void;
}

export interface CoalescedBacklogsDeps {
  readonly clock: Clock;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly chunkCache: ChunkCache;
  /** Where it is folded, one backlog at a time. */
  readonly timeSlices: TimeSliceQueue;
  /** About how large a piece of a unit is, in bytes. */
  readonly chunkBytes: number;
  /** How many bytes may be held, all folds together. */
  readonly maxBytes: number;
}

export interface CoalescedBacklogDeps extends CoalescedBacklogsDeps {
  /** Is called when more has been folded. */
  readonly onCoalesced: () => void;
}

/**
 * What LATEST_STATE watchers with the same filter have not been sent since they stopped at the same node of
 * history. They share it: its fold is made once, and so is the unit that it is told as.
 *
 * It does not hold the node that it begins after, but the one up to which everything is in its fold. So
 * what lies between is garbage, and folding more of history is what lets go of it.
 */
export class CoalescedBacklog {
  readonly filter: Filter;
  /** The sequence of the node that it begins after. */
  readonly after: number;
  readonly #deps: CoalescedBacklogDeps;
  readonly #coalescer: Coalescer;
  readonly #holders = new Set<BacklogReader>();
  readonly #awaiting = new Set<BacklogReader>();
  #reached: EventNode;
  /** Whether anything has happened that those who are behind have to be told of. */
  #hasChanges = false;
  /** Whether something is being folded, or is to be as soon as it is its turn. */
  #isCoalescing = false;
  /** Whether a reader has come for it, since that began. */
  #isRequested = false;
  #finished: (FinishedBacklog & { readonly at: number }) | undefined;

  constructor(filter: Filter, after: EventNode, deps: CoalescedBacklogDeps) {
    this.filter = filter;
    this.after = after.sequence;
    this.#coalescer = new Coalescer(after.revision);
    this.#reached = after;
    this.#deps = deps;
  }

  /** Everything up to this node is folded. */
  get reached(): EventNode {
    return this.#reached;
  }

  /** How many objects the fold holds something of. */
  get objects(): number {
    return this.#coalescer.size;
  }

  /** By weight. */
  get bytes(): number {
    return this.#coalescer.bytes;
  }

  /** Those who are behind with it. */
  get holders(): ReadonlySet<BacklogReader> {
    return this.#holders;
  }

  /** Whether there is no use in keeping it any longer for those who may come. */
  get isStale(): boolean {
    return this.#holders.size === 0 && !this.#isCoalescing && !this.#isFresh;
  }

  addHolder(by: BacklogReader): void {
    this.#holders.add(by);
  }

  /** Who held it does so no longer, and does not wait either. Harmless if it did not. */
  removeHolder(by: BacklogReader): void {
    this.#holders.delete(by);
    this.#awaiting.delete(by);
  }

  /**
   * Everything up to where the dispatcher is, or was a moment ago. Undefined if that takes a while, as it is
   * much or others come first: then `reader` is poked when it is done.
   */
  finish(reader: BacklogReader): FinishedBacklog | undefined {
    if (this.#isFresh) return this.#finished;
    this.#isRequested = true;
    this.#startCoalescing();
    if (!this.#isCoalescing) return this.#finished;
    this.#awaiting.add(reader);
    return undefined;
  }

  /** Has everything up to where the dispatcher is folded, so that nothing before that is held any longer. */
  catchUp(): void {
    this.#startCoalescing();
  }

  get #isFresh(): boolean {
    const { clock } = this.#deps;
    return this.#finished !== undefined && clock.now() - this.#finished.at <= sharedForMs;
  }

  #startCoalescing(): void {
    if (this.#isCoalescing) return;
    this.#isCoalescing = true;
    this.#finished = undefined;
    this.#deps.timeSlices.add(this.#coalesceAll());
  }

  *#coalesceAll(): Steps {
    // Taken together: nothing at or below the revision comes after the position.
    const { position: target, revision } = this.#deps.dispatcher;
    yield* this.#coalesceUpTo(target);
    if (this.#isRequested) yield* this.#makeBatch(revision, target);
    this.#isCoalescing = false;
    this.#deps.onCoalesced();
    yield* this.#notifyAll();
  }

  *#coalesceUpTo(target: EventNode): Steps {
    let sinceYield = 0;
    while (this.#reached.sequence < target.sequence) {
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

  *#makeBatch(revision: number, target: EventNode): Steps {
    if (this.#holders.size === 0) return;
    const { clock, chunkBytes, chunkCache } = this.#deps;
    const batch = new CoalescedBatch(revision, this.#hasChanges, chunkBytes, chunkCache);
    yield* this.#coalescer.emit(batch);
    this.#finished = { batch, target, at: clock.now() };
    this.#isRequested = false;
  }

  #take(node: EventNode): void {
    if (node.event === undefined) {
      // Here the cache was filled anew, and resume points from before are no longer taken.
      this.#hasChanges = true;
      return;
    }
    const { type, object } = node.event;
    if (!this.filter.includes(object.key)) return;
    const event = this.filter.select(node);
    if (event !== undefined) {
      // Also if nothing comes of it: what comes next is then after the revision that is told.
      this.#hasChanges = true;
      this.#coalescer.add(event);
    }
    if (type === "DELETED") this.#coalescer.objectDeleted(object.key);
  }

  *#notifyAll(): Steps {
    // They may come to wait again when they are told.
    const readers = [...this.#awaiting];
    this.#awaiting.clear();
    for (const reader of readers) {
      reader.notify();
      yield;
    }
  }
}
