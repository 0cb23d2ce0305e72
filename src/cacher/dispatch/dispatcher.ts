import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import { WatchBatch } from "../../model/event.ts";
import type { RoundReader } from "../../storage/storage.ts";
import { type EventNode, lastOfRevision, lastUpTo } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { DispatchTarget } from "./dispatch-target.ts";
import { RoundPacing } from "./round-pacing.ts";
import { SettledWork } from "./settled-work.ts";
import type { WatcherBounds } from "./watcher-bounds.ts";
import { type BufferBounds, BufferSizing } from "./watcher-buffer.ts";
import { type Groups, type WatcherGroup, WatcherIndex } from "./watcher-index.ts";

/**
 * Maximum number of requirements evaluated per round. A round may exceed it to finish the current revision. Evaluating
 * a group counts one more than its selectors have requirements.
 */
const maxEvaluationsPerRound = 50_000;
/** Number of these between two reads of the clock. */
const evaluationsPerClockCheck = 512;
/** Maximum time per event-loop turn, in milliseconds, in addition to the slice of other time-sliced work. */
const sliceMs = 4;
/** Number of offers between two reads of the clock. */
const offersPerClockCheck = 64;

/**
 * Delivers the events of the cache to the live watchers, in rounds.
 *
 * A round takes the events since the last one, finds the groups of watchers that they concern, builds the batches of
 * each group once, and offers these to every watcher of the group. It never waits for a watcher: one whose buffer is
 * full stalls, and catches up from the event window later.
 */
export class Dispatcher {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #bounds: WatcherBounds;
  readonly #bufferSizing: BufferSizing;
  readonly #onDispatched: ((latencyMs: number) => void) | undefined;
  #index: WatcherIndex;
  readonly #settledWork: SettledWork;
  /** Whether a step of the round is on the call stack. Between steps a round is in progress, too. */
  #isStepping = false;
  #position: EventNode;
  #revision: number;
  #round: Generator<void, void, void> | undefined;
  /** When the oldest event of the round arrived, by the clock; undefined if the round began without events. */
  #roundArrivedAt: number | undefined;
  /** Number of revisions that the round has collected. */
  #roundRevisions = 0;
  /** Watchers that joined during the current round. They have had all of its events. Empty between rounds. */
  readonly #joinedInRound = new Set<DispatchTarget>();
  /** Those that read when the current round has offered everything. */
  readonly #readers = new Set<RoundReader>();
  #isScheduled = false;
  /** When the next round may begin, by the clock, if there is a dispatch interval. */
  #nextRoundAt = -Infinity;
  /** Spaces the rounds without a dispatch interval. */
  readonly #pacing = new RoundPacing();
  #settledRevision: number;
  #bookmark: WatchBatch;
  #dispatchedEvents = 0;
  #dispatchedBatches = 0;

  /**
   * `onDispatched` is called at the end of each round with events, with the time since the oldest of them arrived, in
   * milliseconds.
   */
  constructor(
    cache: WatchCache,
    clock: Clock,
    bounds: WatcherBounds,
    onDispatched?: (latencyMs: number) => void,
  ) {
    this.#cache = cache;
    this.#clock = clock;
    this.#bounds = bounds;
    this.#bufferSizing = new BufferSizing(bounds);
    this.#onDispatched = onDispatched;
    this.#index = newIndex(cache);
    this.#settledWork = new SettledWork(clock, this);
    this.#position = cache.eventWindow.newest;
    this.#revision = cache.revision;
    this.#settledRevision = cache.revision;
    this.#bookmark = new WatchBatch(cache.revision, []);
  }

  /** The last event node that was offered, or is being offered in the current round. */
  get position(): EventNode {
    return this.#position;
  }

  /**
   * The revision that belongs to `position`: every event behind that node has a higher one.
   *
   * It is often higher than the revision of the event itself. Other keys of the store change as well, and the store
   * reports such progress without an event. If the last event has revision 10, and the cache has learned since that the
   * store is at 15, this is 15: a watcher that has received the event knows everything up to 15, and the next event has
   * at least revision 16.
   */
  get revision(): number {
    return this.#revision;
  }

  /**
   * Every live watcher has been offered all events up to and including this revision. It is below `revision` only
   * during a round.
   */
  get settledRevision(): number {
    return this.#settledRevision;
  }

  /** Events put into buffers, counted once per watcher. */
  get dispatchedEvents(): number {
    return this.#dispatchedEvents;
  }

  /** Batches put into buffers, counted once per watcher. */
  get dispatchedBatches(): number {
    return this.#dispatchedBatches;
  }

  /** A bookmark at `settledRevision`. All watchers share the object. */
  get bookmark(): WatchBatch {
    if (this.#bookmark.revision !== this.#settledRevision) {
      this.#bookmark = new WatchBatch(this.#settledRevision, []);
    }
    return this.#bookmark;
  }

  /** Current capacity of the buffer of a live watcher; without an argument, of an unindexed one. */
  bufferBounds(watcher?: { readonly filter: Filter }): BufferBounds {
    const isIndexed = watcher !== undefined && this.#index.isIndexed(watcher.filter);
    return isIndexed ? this.#bufferSizing.indexed : this.#bufferSizing.unindexed;
  }

  /** Sends the watcher a bookmark at `settledRevision`. Returns false if it is unsynced, ahead of it, or full. */
  sendBookmark(watcher: DispatchTarget): boolean {
    return watcher.bookmark(this.bookmark, this.bufferBounds(watcher));
  }

  /** As `sendBookmark`. If that fails, the watcher gets one once it is live and its buffer has been read. */
  requestBookmark(watcher: DispatchTarget): void {
    watcher.requestBookmark(this.bookmark, this.bufferBounds(watcher));
  }

  /** Offers the watcher every event after `position`. It has received, or is about to be handed, all before. */
  join(watcher: DispatchTarget): void {
    if (this.#round !== undefined) this.#joinedInRound.add(watcher);
    this.#index.add(watcher);
    this.#settledWork.add(watcher);
  }

  /** Stops offering. Does nothing for a watcher that has not joined. */
  leave(watcher: DispatchTarget): void {
    this.#index.remove(watcher);
    this.#settledWork.remove(watcher);
  }

  /** Notifies the watcher once, after the next round. For few watchers: not time-sliced. */
  notifyAfterRound(watcher: DispatchTarget): void {
    this.#settledWork.notifyNext(watcher);
  }

  /**
   * Calls the reader once, within the current round, when that has offered everything to all watchers; at once if there is
   * no round. So a client of many watchers reads together what is new to all of them.
   */
  readAfterOffers(reader: RoundReader): void {
    if (this.#round === undefined) reader.roundOffered();
    else this.#readers.add(reader);
  }

  /** Schedules a round, as the cache has new events or a new revision. */
  wake(): void {
    if (this.#isScheduled || this.#round !== undefined) return;
    if (this.#cache.eventWindow.newest === this.#position) {
      this.#settle();
      return;
    }
    this.#scheduleRound();
  }

  /**
   * Offers all events at once, without yielding to the event loop. Does nothing if it is called by a client that reads
   * within an offer, as that step of the round has to end first.
   */
  flush(): void {
    if (this.#isStepping) return;
    do {
      this.#begin();
      while (this.#round !== undefined) this.#step();
    } while (this.#cache.eventWindow.newest !== this.#position);
  }

  /** Calls `callback`, now or later, when every live watcher has been offered all events up to `revision`. */
  whenSettled(revision: number, callback: () => void): void {
    this.#settledWork.addCallback(revision, callback);
    this.wake();
  }

  /** Starts over at the newest event, after the cache was filled from a new list. No watcher is live. */
  reset(): void {
    this.#endRound();
    if (this.#readers.size > 0) runInTimeSlices(this.#clock, this.#readAll());
    this.#index = newIndex(this.#cache);
    this.#settledWork.clear();
    this.#position = this.#cache.eventWindow.newest;
    this.#revision = this.#cache.revision;
    this.#settledRevision = this.#revision;
  }

  readonly #continue = (): void => {
    this.#isScheduled = false;
    this.#begin();
    const [events, batches] = [this.#dispatchedEvents, this.#dispatchedBatches];
    const startedAt = this.#clock.now();
    let now = startedAt;
    while (this.#round !== undefined) {
      this.#step();
      now = this.#clock.now();
      if (now >= startedAt + sliceMs) break;
    }
    this.#pacing.record(now, {
      busyMs: now - startedAt,
      revisions: this.#roundRevisions,
      events: this.#dispatchedEvents - events,
      batches: this.#dispatchedBatches - batches,
      watchers: this.#index.size,
    });
    if (this.#round !== undefined) {
      this.#isScheduled = true;
      this.#clock.setImmediate(this.#continue);
    } else if (this.#cache.eventWindow.newest !== this.#position) {
      this.#scheduleRound();
    }
  };

  /** Schedules a round for the next turn of the event loop, or later by the dispatch interval or the pacing. */
  #scheduleRound(): void {
    this.#isScheduled = true;
    const now = this.#clock.now();
    const hasInterval = this.#bounds.dispatchIntervalMs > 0;
    const waitMs = hasInterval ? this.#nextRoundAt - now : this.#pacing.waitMs(now);
    if (waitMs > 0) this.#clock.setTimeout(this.#continue, waitMs);
    else this.#clock.setImmediate(this.#continue);
  }

  #begin(): void {
    if (this.#round !== undefined) return;
    const { dispatchIntervalMs } = this.#bounds;
    if (dispatchIntervalMs > 0) this.#nextRoundAt = this.#clock.now() + dispatchIntervalMs;
    this.#roundArrivedAt = this.#position.next?.arrivedAt;
    this.#roundRevisions = 0;
    this.#round = this.#offerAll();
  }

  #endRound(): void {
    this.#round = undefined;
    if (this.#joinedInRound.size > 0) this.#joinedInRound.clear();
  }

  #step(): void {
    this.#isStepping = true;
    const done = this.#round?.next().done;
    this.#isStepping = false;
    if (done !== true) return;
    if (this.#onDispatched !== undefined && this.#roundArrivedAt !== undefined) {
      this.#onDispatched(this.#clock.now() - this.#roundArrivedAt);
    }
    this.#endRound();
    this.#settle();
  }

  /** One round. Yields regularly, so that its caller can yield to the event loop. */
  *#offerAll(): Generator<void, void, void> {
    const from = this.#position;
    const joined = this.#joinedInRound;
    const touched: WatcherGroup[] = [];
    yield* this.#collect(touched);
    if (this.#position !== from) {
      this.#bufferSizing.record(this.#position.bytes - from.bytes, this.#clock.now());
    }
    const revision = this.#revision;
    const arrivedAt = this.#roundArrivedAt ?? this.#clock.now();
    const { indexed, unindexed } = this.#bufferSizing;
    let offers = 0;
    for (const group of touched) {
      const batches = group.takeBatches(revision, this.#bounds.batchBytes, arrivedAt);
      const bounds = group.isIndexed ? indexed : unindexed;
      for (const watcher of group.watchers) {
        if (joined.size > 0 && joined.has(watcher)) continue;
        this.#offerTo(watcher, batches, bounds, from);
        if (++offers % offersPerClockCheck === 0) yield;
      }
    }
    yield* this.#readAll();
  }

  *#readAll(): Generator<void, void, void> {
    for (const reader of this.#readers) {
      this.#readers.delete(reader);
      reader.roundOffered();
      yield;
    }
  }

  /**
   * Adds the events of the next revisions to the groups that they concern. May yield between any two groups, and
   * watchers may join then. They have received everything up to `position`, which includes the current revision. After
   * that the round takes no further revision, since it skips these watchers and they would miss it.
   */
  *#collect(touched: WatcherGroup[]): Generator<void, void, void> {
    const until = this.#clock.now() + sliceMs;
    const places: Groups[] = [];
    let evaluations = 0;
    let nextClockCheck = evaluationsPerClockCheck;
    for (let next = this.#position.next; next !== undefined; next = next.next) {
      if (next.sequence > this.#position.sequence) {
        if (this.#joinedInRound.size > 0 || evaluations >= maxEvaluationsPerRound) break;
        // Bounds what is collected before the first offer, also across several turns of the event loop.
        if (evaluations >= nextClockCheck) {
          if (this.#clock.now() >= until) break;
          nextClockCheck = evaluations + evaluationsPerClockCheck;
        }
        this.#moveTo(lastOfRevision(next));
        this.#roundRevisions++;
      }
      evaluations += this.#index.find(next, places);
      for (const groups of places) {
        for (const group of groups.values()) {
          evaluations += group.filter.costOf(next);
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

  /** No round is in progress: does the work that has to wait for that. */
  #settle(): void {
    if (this.#cache.eventWindow.newest === this.#position) this.#revision = this.#cache.revision;
    this.#settledRevision = this.#revision;
    this.#settledWork.run();
  }
}

/** An index by the same fields as the cache has. */
function newIndex({ objectAttributes }: WatchCache): WatcherIndex {
  return new WatcherIndex(objectAttributes.indexes, objectAttributes.readField);
}
