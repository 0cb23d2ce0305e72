import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import { WatchBatch } from "../../model/event.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { type BufferBounds, BufferSizing } from "./buffer-sizing.ts";
import type { DispatchTarget } from "./dispatch-target.ts";
import type { WatcherBounds } from "./watcher-bounds.ts";
import { type Groups, type WatcherGroup, WatcherIndex } from "./watcher-index.ts";

/**
 * After how many requirements that events were held against a round takes up no further revision. Each group that
 * is asked counts for one more than its selectors have.
 */
const maxEvaluationsPerRound = 50_000;
/** How many of them there are between two looks at the clock. */
const evaluationsPerClockCheck = 512;
/** How long the dispatcher may hold the event loop in one turn, beside other time-sliced work, in milliseconds. */
const sliceMs = 4;
/** How many offers are made between two looks at the clock. */
const offersPerClockCheck = 64;

/**
 * Brings what the cache takes in to the live watchers, in rounds.
 *
 * A round takes all events since the last one, finds the groups that they concern, builds the batches
 * of each group once and offers these same batches to every watcher of the group. An offer is taken or
 * it is not; nobody is waited for. Whoever did not take it stalls and helps itself from history later.
 */
export class Dispatcher {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #bounds: WatcherBounds;
  readonly #bufferSizing: BufferSizing;
  #index: WatcherIndex;
  readonly #eager = new Set<DispatchTarget>();
  readonly #awaiting = new Set<DispatchTarget>();
  /** To be called once `settledRevision` is so high. */
  #whenSettled: { readonly revision: number; readonly callback: () => void }[] = [];
  /** Whether a round is being worked on right now, and not just under way. */
  #stepping = false;
  #position: EventNode;
  #revision: number;
  #round: Generator<void, void, void> | undefined;
  /** Watchers that joined during the current round. They have had all of its events. Empty between rounds. */
  readonly #joinedInRound = new Set<DispatchTarget>();
  #scheduled = false;
  /** Whether eager watchers are being told: one such walk at a time, however long it takes. */
  #bookmarking = false;
  #settledRevision: number;
  #bookmark: WatchBatch;
  #dispatchedEvents = 0;
  #dispatchedBatches = 0;

  constructor(cache: WatchCache, clock: Clock, bounds: WatcherBounds) {
    this.#cache = cache;
    this.#clock = clock;
    this.#bounds = bounds;
    this.#bufferSizing = new BufferSizing(bounds);
    this.#index = newIndex(cache);
    this.#position = cache.eventWindow.newest;
    this.#revision = cache.revision;
    this.#settledRevision = cache.revision;
    this.#bookmark = new WatchBatch(cache.revision, []);
  }

  /** Everything up to this node has been offered, or is being offered in the round under way. */
  get position(): EventNode {
    return this.#position;
  }

  /** The revision that goes with `position`: no event at or below it comes after it. */
  get revision(): number {
    return this.#revision;
  }

  /**
   * What every live watcher has been offered everything up to and including. Below `revision` only
   * while a round is under way.
   */
  get settledRevision(): number {
    return this.#settledRevision;
  }

  /** Events put into inputs, counted once for each watcher. */
  get dispatchedEvents(): number {
    return this.#dispatchedEvents;
  }

  /** Batches put into inputs, counted once for each watcher. */
  get dispatchedBatches(): number {
    return this.#dispatchedBatches;
  }

  /** A bookmark at `settledRevision`, the same object for all who get it. */
  get bookmark(): WatchBatch {
    if (this.#bookmark.revision !== this.#settledRevision) {
      this.#bookmark = new WatchBatch(this.#settledRevision, []);
    }
    return this.#bookmark;
  }

  /** Current capacity of the buffer of a live watcher with this filter; without one, of an unindexed watcher. */
  bufferBounds(filter?: Filter): BufferBounds {
    const isIndexed = filter !== undefined && this.#index.isIndexed(filter);
    return isIndexed ? this.#bufferSizing.indexed : this.#bufferSizing.unindexed;
  }

  /** Sends the watcher a bookmark at `settledRevision`. Returns false if it is unsynced, ahead of it, or full. */
  sendBookmark(watcher: DispatchTarget): boolean {
    return watcher.bookmark(this.bookmark, this.bufferBounds(watcher.filter));
  }

  /** As `sendBookmark`, or as soon as the watcher is synced and its buffer has room. */
  requestBookmark(watcher: DispatchTarget): void {
    watcher.requestBookmark(this.bookmark, this.bufferBounds(watcher.filter));
  }

  /** From now on the watcher, which has had everything up to `position`, is offered what comes. */
  join(watcher: DispatchTarget): void {
    if (this.#round !== undefined) this.#joinedInRound.add(watcher);
    this.#index.add(watcher);
    if (watcher.options.eagerBookmarks) this.#eager.add(watcher);
  }

  /** No more is offered. Harmless for a watcher that never joined. */
  leave(watcher: DispatchTarget): void {
    this.#index.remove(watcher);
    this.#eager.delete(watcher);
    this.#awaiting.delete(watcher);
  }

  /** Pokes the watcher, which is ahead of `position`, after the next round. */
  notifyAfterRound(watcher: DispatchTarget): void {
    this.#awaiting.add(watcher);
  }

  /** The cache has taken something in. */
  wake(): void {
    if (this.#scheduled || this.#round !== undefined) return;
    if (this.#cache.eventWindow.newest === this.#position) {
      this.#settle();
      return;
    }
    this.#scheduled = true;
    this.#clock.setImmediate(this.#continue);
  }

  /**
   * Offers all there is, without giving the event loop back. Does nothing when it is called by the
   * reader of a watcher that is being offered something: that has to come to its end first.
   */
  flush(): void {
    if (this.#stepping) return;
    do {
      this.#begin();
      while (this.#round !== undefined) this.#step();
    } while (this.#cache.eventWindow.newest !== this.#position);
  }

  /** Calls `callback`, now or later, when every live watcher has been offered all up to `revision`. */
  whenSettled(revision: number, callback: () => void): void {
    this.#whenSettled.push({ revision, callback });
    this.wake();
  }

  /** History begins anew, and no watcher is live that was before. */
  reset(): void {
    this.#endRound();
    this.#index = newIndex(this.#cache);
    this.#eager.clear();
    this.#awaiting.clear();
    this.#position = this.#cache.eventWindow.newest;
    this.#revision = this.#cache.revision;
    this.#settledRevision = this.#revision;
    this.#whenSettled = [];
  }

  readonly #continue = (): void => {
    this.#scheduled = false;
    this.#begin();
    const until = this.#clock.now() + sliceMs;
    while (this.#round !== undefined) {
      this.#step();
      if (this.#clock.now() >= until) break;
    }
    if (this.#round !== undefined || this.#cache.eventWindow.newest !== this.#position) {
      this.#scheduled = true;
      this.#clock.setImmediate(this.#continue);
    }
  };

  #begin(): void {
    if (this.#round !== undefined) return;
    this.#round = this.#offerAll();
  }

  #endRound(): void {
    this.#round = undefined;
    if (this.#joinedInRound.size > 0) this.#joinedInRound.clear();
  }

  #step(): void {
    this.#stepping = true;
    const done = this.#round?.next().done;
    this.#stepping = false;
    if (done !== true) return;
    this.#endRound();
    this.#settle();
  }

  /** One round. Yields now and then, so that whoever runs it may give the event loop back. */
  *#offerAll(): Generator<void, void, void> {
    const from = this.#position;
    const joined = this.#joinedInRound;
    const touched: WatcherGroup[] = [];
    yield* this.#collect(touched);
    if (this.#position !== from) {
      this.#bufferSizing.record(this.#position.bytes - from.bytes, this.#clock.now());
    }
    const revision = this.#revision;
    const { indexed, unindexed } = this.#bufferSizing;
    let offers = 0;
    for (const group of touched) {
      const batches = group.takeBatches(revision, this.#bounds.batchBytes);
      const bounds = group.isIndexed ? indexed : unindexed;
      for (const watcher of group.watchers) {
        if (joined.size > 0 && joined.has(watcher)) continue;
        this.#offerTo(watcher, batches, bounds, from);
        if (++offers % offersPerClockCheck === 0) yield;
      }
    }
  }

  /**
   * Moves on past the next revisions, and has every group that their events concern take them up. It may yield
   * between any two groups. Whoever joins meanwhile has had everything up to `position`, which is moved on before
   * a revision is taken up; so no further one is taken up then, which they would miss.
   */
  *#collect(touched: WatcherGroup[]): Generator<void, void, void> {
    const until = this.#clock.now() + sliceMs;
    const places: Groups[] = [];
    let evaluations = 0;
    let nextClockCheck = evaluationsPerClockCheck;
    for (let next = this.#position.next; next !== undefined; next = next.next) {
      if (next.sequence > this.#position.sequence) {
        if (this.#joinedInRound.size > 0 || evaluations >= maxEvaluationsPerRound) break;
        // Before the first offer too much is not to be gathered, however often it is yielded.
        if (evaluations >= nextClockCheck) {
          if (this.#clock.now() >= until) break;
          nextClockCheck = evaluations + evaluationsPerClockCheck;
        }
        this.#moveTo(lastOfRevision(next));
      }
      evaluations += this.#index.find(next, places);
      for (const groups of places) {
        for (const group of groups.values()) {
          evaluations += group.filter.cost;
          if (group.add(next)) touched.push(group);
          if (evaluations < nextClockCheck) continue;
          nextClockCheck = evaluations + evaluationsPerClockCheck;
          yield;
        }
      }
      places.length = 0;
    }
    this.#moveTo(this.#position);
  }

  #moveTo(node: EventNode): void {
    this.#position = node;
    this.#revision = node.next === undefined ? this.#cache.revision : node.revision;
  }

  #offerTo(
    watcher: DispatchTarget,
    batches: readonly WatchBatch[],
    bounds: BufferBounds,
    from: EventNode,
  ): void {
    let before: WatchBatch | undefined;
    for (const batch of batches) {
      if (!watcher.offer(batch, bounds)) {
        this.leave(watcher);
        watcher.stall(lastUpTo(before?.revision ?? 0, from));
        return;
      }
      this.#dispatchedBatches++;
      this.#dispatchedEvents += batch.events.length;
      before = batch;
    }
  }

  /** Nothing is under way: what a round must be over for can be done. */
  #settle(): void {
    if (this.#cache.eventWindow.newest === this.#position) this.#revision = this.#cache.revision;
    this.#settledRevision = this.#revision;
    if (this.#eager.size > 0 && !this.#bookmarking)
      runInTimeSlices(this.#clock, this.#bookmarkEager());
    if (this.#awaiting.size > 0) {
      const awaiting = [...this.#awaiting];
      this.#awaiting.clear();
      for (const watcher of awaiting) watcher.notify();
    }
    if (this.#whenSettled.length === 0) return;
    const waiting = this.#whenSettled;
    this.#whenSettled = waiting.filter(({ revision }) => revision > this.#settledRevision);
    for (const { revision, callback } of waiting) {
      if (revision <= this.#settledRevision) callback();
    }
  }

  /** Over and over, until none of them has been passed by a newer revision meanwhile. */
  *#bookmarkEager(): Generator<void, void, void> {
    this.#bookmarking = true;
    let announced: number;
    do {
      announced = this.#settledRevision;
      for (const watcher of this.#eager) {
        if (watcher.position >= this.#settledRevision) continue;
        this.requestBookmark(watcher);
        yield;
      }
    } while (announced !== this.#settledRevision);
    this.#bookmarking = false;
  }
}

/** Over the fields that the state is indexed by. */
function newIndex({ objectAttributes }: WatchCache): WatcherIndex {
  return new WatcherIndex(objectAttributes.indexes, objectAttributes.readField);
}

function lastOfRevision(node: EventNode): EventNode {
  let last = node;
  while (last.next !== undefined && last.next.revision === node.revision) last = last.next;
  return last;
}

/**
 * The last node at or below `revision`, from `from` on. Follows the links, as a round may be longer than
 * the event window.
 */
function lastUpTo(revision: number, from: EventNode): EventNode {
  let node = from;
  while (node.next !== undefined && node.next.revision <= revision) node = node.next;
  return node;
}
