import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { runInTimeSlices } from "../base/time-slice-queue.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../base/time-slices.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../reflector/reflector.ts";
import type { CoalescedBacklogs } from "./catch-up/coalesced-backlogs.ts";
import type { Snapshots } from "./catch-up/snapshots.ts";
import type { Dispatcher } from "./dispatch/dispatcher.ts";
import type { CurrentRevision } from "./freshness/current-revision.ts";
import type { Readiness } from "./freshness/readiness.ts";
import type { RevisionWaiters } from "./freshness/revision-waiters.ts";
import { lost } from "./request/errors.ts";
import type { ObjectAttributes } from "./request/object-attributes.ts";
import { diffStates, type StateChange } from "./state/diff.ts";
import type { EventWindowBackfill } from "./state/event-window-backfill.ts";
import type { HistoricalSnapshots } from "./state/historical-snapshots.ts";
import type { WatchCache } from "./state/watch-cache.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import type { ProgressRequester } from "./watch/progress-requester.ts";

export interface EventIngestDeps {
  readonly name: string;
  readonly clock: Clock;
  readonly objectAttributes: ObjectAttributes;
  readonly timeSlices: TimeSliceScheduler;
  readonly logger: Logger;
  readonly cache: WatchCache;
  readonly backfill: EventWindowBackfill;
  readonly readiness: Readiness;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly progressRequester: ProgressRequester;
  readonly dispatcher: Dispatcher;
  readonly snapshots: Snapshots;
  readonly historicalSnapshots: HistoricalSnapshots;
  readonly coalescedBacklogs: CoalescedBacklogs;
  readonly watchers: ReadonlySet<CacheWatcher>;
}

/** How many objects are read in one step. */
const objectsPerStep = 64;

type Listed = Pick<ListedState, "objects" | "revision">;

/** Where a Cacher takes in what its Reflector hands over, and has everyone learn of it. */
export class EventIngest implements ReflectorTarget {
  readonly #deps: EventIngestDeps;
  #lastReceivedAt: number;
  #receivedEvents = 0;
  /** What leads to the state that is about to be handed over, where something does. */
  #changes: readonly StateChange[] | undefined;
  /** Stops asking for the progress that the cache needs to become ready. */
  #stopAsking = (): void => {};

  constructor(deps: EventIngestDeps) {
    this.#deps = deps;
    this.#lastReceivedAt = deps.clock.now();
  }

  /** How long nothing has come, in milliseconds. */
  get silenceMs(): number {
    return this.#deps.clock.now() - this.#lastReceivedAt;
  }

  get receivedEvents(): number {
    return this.#receivedEvents;
  }

  prepare(objects: readonly StoredObject[], signal: AbortSignal): Promise<void> {
    const { objectAttributes, timeSlices } = this.#deps;
    return timeSlices.run(this, readEach(objectAttributes, objects), signal);
  }

  conflictsWith(state: Listed): boolean {
    // A cache that was found to be wrong says nothing, and has nobody to be told of a difference.
    if (!this.#deps.readiness.ready) return false;
    this.#changes = this.#changesTo(state);
    return this.#changes === undefined;
  }

  replace(state: ListedState, cause: ReplaceCause): void {
    const { cache, dispatcher, readiness, currentRevision, waiters, backfill } = this.#deps;
    this.#lastReceivedAt = this.#deps.clock.now();
    // Whoever is live is to have had all that is known of what was.
    if (cause === "history lost") dispatcher.flush();
    const lastKnown = dispatcher.position;
    const difference = cause === "history lost" ? this.#changes : undefined;
    const end = lost(cause, state.revision, state.historyId);
    const all = [...this.#deps.watchers];
    for (const watcher of all) {
      if (difference === undefined || !isLatestState(watcher)) watcher.endSilently(end);
      else watcher.stall(lastKnown);
    }
    // Before the new state nothing is known to have led to it, except at a start.
    if (cause !== "start") backfill.stop();
    // From here to where the dispatcher begins anew nobody is told of anything.
    cache.replace(state.objects, state.revision, state.historyId, difference);
    this.#changes = undefined;
    this.#deps.snapshots.clear();
    this.#deps.historicalSnapshots.clear();
    dispatcher.reset();
    this.#deps.progressRequester.forget();
    // Nothing leads on from what was: no fold of it is for anyone who begins now.
    if (difference === undefined) this.#deps.coalescedBacklogs.clear();
    if (cause === "history changed") currentRevision.forget();
    const readyAt = readiness.listed(state.current);
    this.#advanced();
    this.#stopAsking();
    // What is missing may be of other keys than ours, of which only progress tells.
    if (readyAt !== undefined && !readiness.ready) {
      this.#stopAsking = waiters.add(readyAt, () => {});
    }
    // Not before all is as it will be: they may read from others' streams, or open new ones.
    runInTimeSlices(this.#deps.clock, notifyEach(all));
    if (cause === "start") backfill.begin();
  }

  invalidate(): void {
    this.#deps.readiness.invalidate();
  }

  identify(historyId: string): void {
    this.#deps.cache.identify(historyId);
  }

  apply(batch: WatchBatch): void {
    this.#lastReceivedAt = this.#deps.clock.now();
    this.#receivedEvents += batch.events.length;
    this.#deps.cache.apply(batch);
    this.#advanced();
  }

  #advanced(): void {
    const { cache, readiness, logger, name, waiters, dispatcher } = this.#deps;
    const { revision } = cache;
    if (readiness.reached(revision)) {
      logger.info({ resource: name, revision }, "the cache is ready");
    }
    waiters.reached(revision);
    dispatcher.wake();
  }

  /**
   * What leads from what the cache holds to `state`, which was listed after history was lost; undefined if
   * nothing does.
   *
   * It is found in one go, without giving the event loop back, as everything here is one step: a cache that
   * is half of one state and half of another can't be read. It is one walk over both states side by side,
   * which costs less than half of what putting the objects into a new state does, and that has to be done in
   * any case.
   */
  #changesTo({ objects, revision }: Listed): readonly StateChange[] | undefined {
    const { cache } = this.#deps;
    const before = { objects: cache.state.range(""), revision: cache.revision };
    return diffStates(before, { objects, revision });
  }
}

function isLatestState({ options }: CacheWatcher): boolean {
  return options.delivery === "LATEST_STATE";
}

/** Reads what the objects say of themselves, which for most codecs takes longer than all else with a listing. */
function* readEach(
  objectAttributes: ObjectAttributes,
  objects: readonly StoredObject[],
): TimeSlicedWork<void> {
  for (const [i, object] of objects.entries()) {
    objectAttributes.of(object);
    if (i % objectsPerStep === 0) yield;
  }
}

function* notifyEach(watchers: readonly CacheWatcher[]): Generator<void, void, void> {
  for (const watcher of watchers) {
    watcher.notify();
    yield;
  }
}
