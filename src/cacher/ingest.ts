import type { WatchFanoutError } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { LatencySampler } from "../base/latency-sampler.ts";
import { Turns } from "../base/turns.ts";
import type { WatchBatch } from "../model/event.ts";
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
import { EventWindowBackfill } from "./state/event-window-backfill.ts";
import type { CacheSummary } from "./stats.ts";

/** Number of objects whose attributes are read in one step. */
const objectsPerStep = 64;

type Listed = Pick<ListedState, "objects" | "revision">;

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
  #observers: readonly CacheObserver[];
  #lastReceivedAt: number;
  /** When the first attempt failed since something was received. */
  #failingSince: number | undefined;
  #receivedEvents = 0;
  /** The changes to the state that the Reflector hands over next; undefined if they are not known. */
  #changes: readonly StateChange[] | undefined;

  /**
   * The backfill reads up to `backfillRevisions` revisions from before the first list. `onFailure` is called with each
   * failure to list or watch the store, before the next attempt.
   */
  constructor(
    context: ComponentContext,
    backfillQueue: BackfillQueue,
    backfillRevisions: number,
    onFailure: (error: WatchFanoutError) => void,
  ) {
    const { name, source: storage, clock, logger, random, stages } = context;
    this.#context = context;
    this.#observers = [];
    this.#timeSlices = new Turns(clock);
    this.#latency = new LatencySampler(clock, (latencyMs) => stages.applied?.(latencyMs));
    this.#lastReceivedAt = clock.now();
    this.reflector = new Reflector({
      ...{ storage, target: this, clock, random },
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

  /** Time since the store last delivered anything, in milliseconds. */
  get silenceMs(): number {
    return this.#context.clock.now() - this.#lastReceivedAt;
  }

  stats(): Pick<
    CacheSummary,
    "upstreamSilenceMs" | "failingForMs" | "step" | "receivedEvents" | "reconnects" | "relists"
  > {
    const { isWatching, next, reconnects, relists } = this.reflector;
    return {
      upstreamSilenceMs: this.silenceMs,
      failingForMs: this.#failingForMs,
      step: isWatching ? "watching" : next,
      receivedEvents: this.#receivedEvents,
      ...{ reconnects, relists },
    };
  }

  prepare(objects: readonly StoredObject[], signal: AbortSignal): Promise<void> {
    const { objectAttributes } = this.#context.cache;
    return this.#timeSlices.run(this, readEach(objectAttributes, objects), signal);
  }

  conflictsWith(state: Listed): boolean {
    // A cache found inconsistent proves nothing, and its watchers have ended, so no watcher needs the changes.
    if (!this.#context.readiness.ready) return false;
    this.#changes = this.#changesTo(state);
    return this.#changes === undefined;
  }

  replace(state: ListedState, cause: ReplaceCause): void {
    const { cache, clock } = this.#context;
    this.#lastReceivedAt = clock.now();
    this.#failingSince = undefined;
    const changes = cause === "history lost" ? this.#changes : undefined;
    this.#changes = undefined;
    const replacement = { state, cause, changes };
    for (const observer of this.#observers) observer.beforeReplace?.(replacement);
    // The backfilled events lead to the first list only.
    if (cause !== "start") this.backfill.stop();
    cache.replace(state.objects, state.revision, state.historyId, changes);
    for (const observer of this.#observers) observer.reset?.(replacement);
    this.#advanced();
    for (const observer of this.#observers) observer.replaced?.();
    if (cause === "start") this.backfill.begin();
  }

  invalidate(): void {
    this.#context.readiness.invalidate();
  }

  identify(historyId: string): void {
    this.#context.cache.identify(historyId);
  }

  apply(batch: WatchBatch): void {
    const { cache, clock } = this.#context;
    const now = clock.now();
    this.#lastReceivedAt = now;
    this.#failingSince = undefined;
    this.#receivedEvents += batch.events.length;
    const arrivedAt = batch.arrivedAt ?? now;
    cache.apply(batch, arrivedAt);
    if (batch.events.length > 0) this.#latency.reached(arrivedAt);
    this.#advanced();
  }

  /** For how long all attempts to list or watch the store have failed, in milliseconds; undefined if none has. */
  get #failingForMs(): number | undefined {
    if (this.#failingSince === undefined || this.reflector.failure === undefined) return undefined;
    return this.#context.clock.now() - this.#failingSince;
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
