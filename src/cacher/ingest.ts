import type { WatchFanoutError } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { LatencySampler } from "../base/latency-sampler.ts";
import { Turns } from "../base/turns.ts";
import type { KeptState, StateKeeper } from "../cache-files/kept-state.ts";
import { WatchBatch, type WatchEvent } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { BackfillQueue } from "../reflector/backfill/window-backfill.ts";
import {
  type ListedState,
  Reflector,
  type ReflectorTarget,
  type ReplaceCause,
} from "../reflector/reflector.ts";
import type { ObjectAttributes } from "./request/object-attributes.ts";
import type { CacheObserver, ComponentContext } from "./state/component.ts";
import { diffStates, type StateChange } from "./state/diff.ts";
import type { EventNode } from "./state/event-node.ts";
import { EventWindowBackfill } from "./state/event-window-backfill.ts";
import type { CacheSummary } from "./stats.ts";

/** Number of objects whose attributes are read in one step. */
const objectsPerStep = 64;

type Listed = Pick<ListedState, "objects" | "revision">;

/** How the state of a cache outlives its process. */
export interface Keeping {
  readonly keeper: StateKeeper;
  /** Returns the time of day, in milliseconds since the epoch. */
  readonly timeOfDay: () => number;
}

/**
 * Writes what the store delivers into the cache, and reports it to the cache's observers: the Reflector lists and
 * watches the store, and the backfill reads the events from before the first list.
 */
export class EventIngest implements ReflectorTarget {
  readonly reflector: Reflector;
  readonly backfill: EventWindowBackfill;
  readonly #context: ComponentContext;
  /** For what the store delivers; reads of clients have their own. */
  readonly #timeSlices: Turns;
  readonly #latency: LatencySampler;
  readonly #keeping: Keeping | undefined;
  #observers: readonly CacheObserver[];
  #lastReceivedAt: number;
  /** When the first attempt failed since something was received. */
  #failingSince: number | undefined;
  #receivedEvents = 0;
  #warmStarts = 0;
  /** The loaded objects that the cache does not have yet. */
  #loaded: readonly StoredObject[] | undefined;
  /** The changes to the state that the Reflector hands over next; undefined if they are not known. */
  #changes: readonly StateChange[] | undefined;

  /**
   * The backfill reads up to `backfillRevisions` revisions from before the first list. `onFailure` is called with each
   * failure to list or watch the store, before the next attempt. `keeping`: the state outlives the process.
   */
  constructor(
    context: ComponentContext,
    backfillQueue: BackfillQueue,
    backfillRevisions: number,
    onFailure: (error: WatchFanoutError) => void,
    keeping?: Keeping,
  ) {
    const { name, source: storage, clock, logger, random, stages } = context;
    this.#context = context;
    this.#observers = [];
    this.#timeSlices = new Turns(clock);
    this.#latency = new LatencySampler(clock, (latencyMs) => stages.applied?.(latencyMs));
    this.#lastReceivedAt = clock.now();
    this.#keeping = keeping;
    this.reflector = new Reflector({
      ...{ storage, target: this, clock, random },
      startsFromCached: true,
      loadKept: keeping && ((signal) => this.#loadKept(keeping.keeper, signal)),
      logger: logger.child({ resource: name }),
      onFailure: ({ error }) => {
        this.#failingSince ??= clock.now();
        onFailure(error);
      },
    });
    this.backfill = new EventWindowBackfill(context, {
      history: this.reflector,
      timeSlices: this.#timeSlices,
      queue: backfillQueue,
      revisions: backfillRevisions,
    });
  }

  /**
   * Lists and watches the store until `stop`, and reports to `observers` in their order. A bug in this service
   * causes an unhandled rejection, which ends the process: a cache that may be wrong must not be served from.
   */
  start(observers: readonly CacheObserver[]): void {
    this.#observers = observers;
    void this.reflector.run();
  }

  /** Writes nothing more into the cache. Idempotent. */
  stop(): void {
    this.reflector.stop();
    this.backfill.stop();
  }

  /** Writes what is kept of the state, for up to some seconds. Idempotent. */
  async close(): Promise<void> {
    await this.#keeping?.keeper.close();
  }

  /** The state must not be served, by a later process either, until it has been listed again. */
  discard(): void {
    this.#keeping?.keeper.invalidate();
    this.reflector.relist();
  }

  /** Time since the store last delivered anything, in milliseconds. */
  get silenceMs(): number {
    return this.#context.clock.now() - this.#lastReceivedAt;
  }

  stats(): Pick<
    CacheSummary,
    | ("upstreamSilenceMs" | "failingForMs" | "step" | "receivedEvents" | "reconnects" | "relists")
    | ("warmStarts" | "keeperFailures")
  > {
    const { isWatching, next, reconnects, relists } = this.reflector;
    return {
      upstreamSilenceMs: this.silenceMs,
      failingForMs: this.#failingForMs,
      step: isWatching ? "watching" : next,
      receivedEvents: this.#receivedEvents,
      ...{ reconnects, relists },
      warmStarts: this.#warmStarts,
      keeperFailures: this.#keeping?.keeper.failures ?? 0,
    };
  }

  prepare(objects: readonly StoredObject[], signal: AbortSignal): Promise<void> {
    const { objectAttributes } = this.#context.cache;
    return this.#timeSlices.run(this, readEach(objectAttributes, objects), signal);
  }

  has(key: string): boolean {
    return this.#context.cache.state.get(key) !== undefined;
  }

  conflictsWith(state: Listed): boolean {
    // A cache found inconsistent proves nothing, and its watchers have ended, so no watcher needs the changes.
    if (!this.#context.readiness.ready) return false;
    this.#changes = this.#changesTo(state);
    return this.#changes === undefined;
  }

  replace(state: ListedState, cause: ReplaceCause): void {
    const { cache, clock } = this.#context;
    const { objects, revision, historyId, kept } = state;
    this.#lastReceivedAt = clock.now() - (kept === undefined ? 0 : this.#ageOf(kept));
    this.#failingSince = undefined;
    const changes = cause === "history lost" ? this.#changes : undefined;
    this.#changes = undefined;
    const replacement = { state, cause, changes };
    for (const observer of this.#observers) observer.beforeReplace?.(replacement);
    // The backfilled events lead to the first list only.
    if (cause !== "start") this.backfill.stop();
    cache.replace(objects, revision, historyId, changes, kept);
    this.#loaded = undefined;
    if (kept === undefined) this.#keeping?.keeper.replace({ objects, revision, historyId });
    for (const observer of this.#observers) observer.reset?.(replacement);
    this.#advanced();
    for (const observer of this.#observers) observer.replaced?.();
    // A kept state has its event window; what streams need from before that is read when they resume.
    if (kept !== undefined) this.#startedWarm(kept);
    else if (cause === "start") this.backfill.begin();
  }

  invalidate(): void {
    this.#keeping?.keeper.invalidate();
    this.#context.readiness.invalidate();
  }

  identify(historyId: string): void {
    this.#keeping?.keeper.identify(historyId);
    this.#context.cache.identify(historyId);
  }

  apply(batch: WatchBatch): void {
    const { cache, clock } = this.#context;
    const now = clock.now();
    this.#lastReceivedAt = now;
    this.#failingSince = undefined;
    this.#receivedEvents += batch.events.length;
    const arrivedAt = batch.arrivedAt ?? now;
    const { newest } = cache.eventWindow;
    cache.apply(batch, arrivedAt);
    this.#keeping?.keeper.append(withPrevious(batch, newest));
    if (batch.events.length > 0) this.#latency.reached(arrivedAt);
    this.#advanced();
  }

  /** For how long all attempts to list or watch the store have failed, in milliseconds; undefined if none has. */
  get #failingForMs(): number | undefined {
    if (this.#failingSince === undefined || this.reflector.failure === undefined) return undefined;
    return this.#context.clock.now() - this.#failingSince;
  }

  async #loadKept(keeper: StateKeeper, signal: AbortSignal): Promise<KeptState | undefined> {
    const { cache } = this.#context;
    const current = (): Iterable<StoredObject> => this.#loaded ?? cache.state.snapshot().range("");
    const kept = await keeper.load(signal, current);
    this.#loaded = kept?.objects;
    return kept;
  }

  /**
   * How long ago a kept state was equal to the store, in milliseconds. One from the future shows that the clock was set
   * back: then nothing bounds its age but the epoch.
   */
  #ageOf({ syncedAt }: KeptState): number {
    const now = this.#keeping?.timeOfDay() ?? 0;
    return now < syncedAt ? now : now - syncedAt;
  }

  #startedWarm(kept: KeptState): void {
    this.#warmStarts++;
    const { logger, name } = this.#context;
    const { objects, events, revision } = kept;
    const numbers = { objects: objects.length, events: events.length, revision };
    const ageMs = Math.round(this.#ageOf(kept));
    logger.info({ resource: name, ...numbers, ageMs }, "the cache continues from its kept state");
  }

  #advanced(): void {
    const { revision } = this.#context.cache;
    for (const observer of this.#observers) observer.advanced?.(revision);
  }

  /**
   * The changes from the cached state to `state`, which was listed after history was lost; undefined if the cached
   * state can't have led to it.
   *
   * Computed in one go, without time slices, since the replacement is one synchronous step: a cache that holds half
   * of each state can't be read. It is one pass over both states side by side, which costs less than half of
   * building the new state, which is needed in any case.
   */
  #changesTo({ objects, revision }: Listed): readonly StateChange[] | undefined {
    const { cache } = this.#context;
    const before = { objects: cache.state.range(""), revision: cache.revision };
    return diffStates(before, { objects, revision });
  }
}

/** The batch with `previous` in its events, as the event window has them after `last`. */
function withPrevious(batch: WatchBatch, last: EventNode): WatchBatch {
  if (batch.events.length === 0) return batch;
  const events: WatchEvent[] = [];
  for (let node = last.next; node !== undefined; node = node.next) {
    if (node.eventWithPrevious !== undefined) events.push(node.eventWithPrevious);
  }
  return new WatchBatch(batch.revision, events);
}

/** Reads the attributes of all objects, which for most codecs takes longer than the rest of a list. */
function* readEach(
  objectAttributes: ObjectAttributes,
  objects: readonly StoredObject[],
): TimeSlicedWork<void> {
  for (const [i, object] of objects.entries()) {
    objectAttributes.of(object);
    if (i % objectsPerStep === 0) yield;
  }
}
