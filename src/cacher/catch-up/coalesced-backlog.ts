import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { Turns } from "../../base/turns.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { ChunkCache } from "../state/chunk-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { CoalescedBatch } from "./coalesced-batch.ts";
import { Coalescer } from "./coalescer.ts";

/** Number of requirements evaluated between two reads of the clock. An event without a selector counts as one. */
const costPerStep = 256;
/** How long a finished batch is shared with watchers that come later, in milliseconds. */
const sharedForMs = 1_000;

/** A finished batch, and the newest event node that it includes. */
export interface FinishedBacklog {
  readonly batch: CoalescedBatch;
  readonly target: EventNode;
}

/** A watcher that holds a backlog, and may wait for it to be coalesced. */
export interface BacklogReader {
  /** The backlog is coalesced. */
  notify(): void;
  /** Ends the watcher, as all backlogs together exceed their bound. */
  fail(error: WatchFanoutError): void;
}

export interface CoalescedBacklogsDeps {
  readonly clock: Clock;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly chunkCache: ChunkCache;
  /** Coalesces one backlog at a time. */
  readonly turns: Turns;
  /** Approximate size of a chunk of a finished batch, in bytes. */
  readonly chunkBytes: number;
  /** Maximum size of all backlogs together, in bytes. */
  readonly maxBytes: number;
}

export interface CoalescedBacklogDeps extends CoalescedBacklogsDeps {
  /** Called after events have been coalesced. */
  readonly onCoalesced: () => void;
}

/**
 * What LATEST_STATE watchers with the same filter missed since they stopped at the same event node. The watchers share
 * it: its events are coalesced once, and its batch is built once.
 *
 * It does not hold the node that it begins after, only the last one that it has coalesced. So coalescing makes the
 * events before that garbage.
 */
export class CoalescedBacklog {
  readonly filter: Filter;
  /** Sequence of the node that it begins after. */
  readonly after: number;
  readonly #deps: CoalescedBacklogDeps;
  readonly #coalescer: Coalescer;
  readonly #holders = new Set<BacklogReader>();
  readonly #awaiting = new Set<BacklogReader>();
  #reached: EventNode;
  /** Whether its watchers have to receive a batch: events matched, or the cache was filled from a new list. */
  #hasChanges = false;
  /** Whether it is being coalesced, or waits for its time slice. */
  #isCoalescing = false;
  /** Whether a watcher has requested the batch since then. */
  #isRequested = false;
  #finished: (FinishedBacklog & { readonly at: number }) | undefined;

  constructor(filter: Filter, after: EventNode, deps: CoalescedBacklogDeps) {
    this.filter = filter;
    this.after = after.sequence;
    this.#coalescer = new Coalescer(filter, after.revision);
    this.#reached = after;
    this.#deps = deps;
  }

  /** The last event node that is coalesced. */
  get reached(): EventNode {
    return this.#reached;
  }

  /** Number of objects with an entry. */
  get objects(): number {
    return this.#coalescer.size;
  }

  /** Estimated. */
  get bytes(): number {
    return this.#coalescer.bytes;
  }

  /** The watchers that need it. */
  get holders(): ReadonlySet<BacklogReader> {
    return this.#holders;
  }

  /** Whether it can be dropped: it has no holder, and its batch is no longer shared. */
  get isStale(): boolean {
    return this.#holders.size === 0 && !this.#isCoalescing && !this.#isFresh;
  }

  addHolder(holder: BacklogReader): void {
    this.#holders.add(holder);
  }

  /** Removes the holder and cancels its wait. Idempotent. */
  removeHolder(holder: BacklogReader): void {
    this.#holders.delete(holder);
    this.#awaiting.delete(holder);
  }

  /**
   * Returns everything up to the dispatcher's position as of now, or of `sharedForMs` ago at most. Undefined if that
   * needs more than this time slice, or other backlogs come first; `reader` is notified when it is done.
   */
  finish(reader: BacklogReader): FinishedBacklog | undefined {
    if (this.#isFresh) return this.#finished;
    this.#isRequested = true;
    this.#startCoalescing();
    if (!this.#isCoalescing) return this.#finished;
    this.#awaiting.add(reader);
    return undefined;
  }

  /** Starts to coalesce everything up to the dispatcher's position, so that no event before it is kept. */
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
    const { turns } = this.#deps;
    const steps = this.#coalesceAll();
    // One owner has all backlogs.
    turns.start(turns, { step: () => steps.next().done !== true });
  }

  *#coalesceAll(): TimeSlicedWork<void> {
    // Read together: no event at or below the revision comes after the position.
    const { position: target, revision } = this.#deps.dispatcher;
    yield* this.#coalesceUpTo(target);
    if (this.#isRequested) yield* this.#makeBatch(revision, target);
    this.#isCoalescing = false;
    this.#deps.onCoalesced();
    yield* this.#notifyAll();
  }

  *#coalesceUpTo(target: EventNode): TimeSlicedWork<void> {
    let sinceYield = 0;
    while (this.#reached.sequence < target.sequence) {
      // The holders may have ended since the last step.
      if (this.#holders.size === 0) return;
      const { next } = this.#reached;
      if (next === undefined) throw new Error("The events end before the dispatcher's position.");
      this.#take(next);
      this.#reached = next;
      sinceYield += this.filter.costOf(next);
      if (sinceYield < costPerStep) continue;
      sinceYield = 0;
      yield;
    }
  }

  *#makeBatch(revision: number, target: EventNode): TimeSlicedWork<void> {
    if (this.#holders.size === 0) return;
    const { clock, chunkBytes, chunkCache } = this.#deps;
    const batch = new CoalescedBatch(revision, this.#hasChanges, chunkBytes, chunkCache);
    yield* this.#coalescer.emit(batch);
    this.#finished = { batch, target, at: clock.now() };
    this.#isRequested = false;
  }

  #take(node: EventNode): void {
    if (node.event === undefined) {
      // The cache was filled from a new list here, and earlier resume points are no longer accepted.
      this.#hasChanges = true;
      return;
    }
    const { type, object } = node.event;
    if (!this.filter.includes(object.key)) return;
    const event = this.filter.select(node);
    if (event !== undefined) {
      // Set even if the event cancels out: the resume point still has to move past it.
      this.#hasChanges = true;
      this.#coalescer.add(event);
    }
    if (type === "DELETED") this.#coalescer.objectDeleted(object.key);
  }

  *#notifyAll(): TimeSlicedWork<void> {
    // Copied first, since a notified watcher may wait again at once.
    const readers = [...this.#awaiting];
    this.#awaiting.clear();
    for (const reader of readers) {
      reader.notify();
      yield;
    }
  }
}
