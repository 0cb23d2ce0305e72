import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { inSlices } from "../base/time-slice-queue.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../base/time-slices.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../reflector/reflector.ts";
import type { Folds } from "./catch-up/coalesced-backlogs.ts";
import type { Snapshots } from "./catch-up/snapshots.ts";
import type { Dispatcher } from "./dispatch/dispatcher.ts";
import type { SharedRevision } from "./freshness/current-revision.ts";
import type { Readiness } from "./freshness/readiness.ts";
import type { RevisionWaiters } from "./freshness/revision-waiters.ts";
import { lost } from "./request/errors.ts";
import type { Attribution } from "./request/object-attributes.ts";
import { type Difference, stateDifference } from "./state/diff.ts";
import type { EventWindow } from "./state/event-window-backfill.ts";
import type { PastStates } from "./state/historical-snapshots.ts";
import type { WatchCache } from "./state/watch-cache.ts";
import type { CacheWatcher } from "./watch/cache-watcher.ts";
import type { ProgressWish } from "./watch/progress-requester.ts";

export interface IntakeParts {
  readonly name: string;
  readonly clock: Clock;
  readonly attribution: Attribution;
  readonly slices: TimeSliceScheduler;
  readonly logger: Logger;
  readonly cache: WatchCache;
  readonly window: EventWindow;
  readonly readiness: Readiness;
  readonly upstream: SharedRevision;
  readonly waiters: RevisionWaiters;
  readonly progressWish: ProgressWish;
  readonly dispatcher: Dispatcher;
  readonly snapshots: Snapshots;
  readonly pastStates: PastStates;
  readonly folds: Folds;
  readonly watchers: ReadonlySet<CacheWatcher>;
}

/** How many objects are read in one step. */
const objectsPerStep = 64;

type Listed = Pick<ListedState, "objects" | "revision">;

/** Where a Cacher takes in what its Reflector hands over, and has everyone learn of it. */
export class Intake implements ReflectorTarget {
  readonly #parts: IntakeParts;
  #heardAt: number;
  #receivedEvents = 0;
  /** What leads to the state that is about to be handed over, where something does. */
  #difference: readonly Difference[] | undefined;
  /** Stops asking for the progress that the cache needs to become ready. */
  #stopAsking = (): void => {};

  constructor(parts: IntakeParts) {
    this.#parts = parts;
    this.#heardAt = parts.clock.now();
  }

  /** How long nothing has come, in milliseconds. */
  get silenceMs(): number {
    return this.#parts.clock.now() - this.#heardAt;
  }

  get receivedEvents(): number {
    return this.#receivedEvents;
  }

  prepare(objects: readonly StoredObject[], signal: AbortSignal): Promise<void> {
    const { attribution, slices } = this.#parts;
    return slices.run(this, readEach(attribution, objects), signal);
  }

  contradicts(state: Listed): boolean {
    // A cache that was found to be wrong says nothing, and has nobody to be told of a difference.
    if (!this.#parts.readiness.ready) return false;
    this.#difference = this.#differenceTo(state);
    return this.#difference === undefined;
  }

  replace(state: ListedState, cause: ReplaceCause): void {
    const { cache, dispatcher, readiness, upstream, waiters, window } = this.#parts;
    this.#heardAt = this.#parts.clock.now();
    // Whoever is live is to have had all that is known of what was.
    if (cause === "history lost") dispatcher.flush();
    const lastKnown = dispatcher.position;
    const difference = cause === "history lost" ? this.#difference : undefined;
    const end = lost(cause, state.revision, state.historyId);
    const all = [...this.#parts.watchers];
    for (const watcher of all) {
      if (difference === undefined || !isLatestState(watcher)) watcher.failUntold(end);
      else watcher.stall(lastKnown);
    }
    // Before the new state nothing is known to have led to it, except at a start.
    if (cause !== "start") window.stop();
    // From here to where the dispatcher begins anew nobody is told of anything.
    cache.replace(state.objects, state.revision, state.historyId, difference);
    this.#difference = undefined;
    this.#parts.snapshots.clear();
    this.#parts.pastStates.clear();
    dispatcher.reset();
    this.#parts.progressWish.forget();
    // Nothing leads on from what was: no fold of it is for anyone who begins now.
    if (difference === undefined) this.#parts.folds.clear();
    if (cause === "history changed") upstream.forget();
    const readyAt = readiness.listed(state.current);
    this.#advanced();
    this.#stopAsking();
    // What is missing may be of other keys than ours, of which only progress tells.
    if (readyAt !== undefined && !readiness.ready) {
      this.#stopAsking = waiters.add(readyAt, () => {});
    }
    // Not before all is as it will be: they may read from others' streams, or open new ones.
    inSlices(this.#parts.clock, pokeEach(all));
    if (cause === "start") window.begin();
  }

  disprove(): void {
    this.#parts.readiness.disprove();
  }

  identify(historyId: string): void {
    this.#parts.cache.identify(historyId);
  }

  apply(batch: WatchBatch): void {
    this.#heardAt = this.#parts.clock.now();
    this.#receivedEvents += batch.events.length;
    this.#parts.cache.apply(batch);
    this.#advanced();
  }

  #advanced(): void {
    const { cache, readiness, logger, name, waiters, dispatcher } = this.#parts;
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
  #differenceTo({ objects, revision }: Listed): readonly Difference[] | undefined {
    const { cache } = this.#parts;
    const before = { objects: cache.state.range(""), revision: cache.revision };
    return stateDifference(before, { objects, revision });
  }
}

function isLatestState({ wishes }: CacheWatcher): boolean {
  return wishes.delivery === "LATEST_STATE";
}

/** Reads what the objects say of themselves, which for most codecs takes longer than all else with a listing. */
function* readEach(
  attribution: Attribution,
  objects: readonly StoredObject[],
): TimeSlicedWork<void> {
  for (const [i, object] of objects.entries()) {
    attribution.of(object);
    if (i % objectsPerStep === 0) yield;
  }
}

function* pokeEach(watchers: readonly CacheWatcher[]): Generator<void, void, void> {
  for (const watcher of watchers) {
    watcher.poke();
    yield;
  }
}
