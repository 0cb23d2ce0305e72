import { Backoff, defaultBackoffBounds } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import { Condition } from "../../base/wait.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import { type ChunkSize, ChunkSizing, maxChunkBytes, type Room } from "./chunk-sizing.ts";
import { type PastEvents, readPast } from "./past-events.ts";

/**
 * State of a backfill:
 * - `running`;
 * - `paused`: what is read without a request is in the target; older events are read on request;
 * - `complete`: everything requested is in the target;
 * - `full`: the target has no room for older events;
 * - `compacted`: the store has nothing older;
 * - `costly`: older events would cost the store too much;
 * - `failed`: the store failed several times in a row;
 * - `conflicting`: the store's events do not fit the known state;
 * - `stopped`: it was stopped.
 */
export const backfillStates = [
  ...(["running", "paused", "complete", "full", "compacted"] as const),
  ...(["costly", "failed", "conflicting", "stopped"] as const),
] as const;

export type BackfillState = (typeof backfillStates)[number];

/** What a target has taken of a chunk. */
interface Prepended {
  /** The target now has everything after this revision. */
  readonly after: number;
  /** Number of events that it has taken. */
  readonly events: number;
  /** Whether it has no room for anything older. */
  readonly isFull: boolean;
}

/** What a backfill writes into. */
export interface BackfillTarget {
  /** The room that is left. */
  readonly room: Room;
  /**
   * Takes the events before its oldest ones, or the newest part of them. Resolves to undefined, and takes nothing, if
   * they can't have led to the target's state. Rejects with the signal's reason.
   */
  prepend(past: PastEvents, signal: AbortSignal): Promise<Prepended | undefined>;
  /** The backfill is paused: releases the memory that only further chunks need. */
  release(): void;
}

export interface BackfillOptions {
  readonly storage: Storage;
  readonly scope: Scope;
  /** The history of the target's state. Undefined or empty: not known. */
  readonly historyId?: string | undefined;
  readonly target: BackfillTarget;
  readonly clock: Clock;
  readonly random: () => number;
  /** Shared by all backfills from the same store. */
  readonly queue: BackfillQueue;
  /** Rejects if the store's history is, or may be, another one than the followed one. */
  readonly confirmHistory: (signal: AbortSignal) => Promise<void>;
  /** The target has everything after this revision. */
  readonly endRevision: number;
  /** How far back to fill: everything after this revision, if it is available. */
  readonly startRevision: number;
  /** How far back to fill without a request. Default: `startRevision`. */
  readonly eagerRevision?: number | undefined;
  /** Number of events after which nothing more is filled without a request. Default: no limit. */
  readonly eagerEvents?: number | undefined;
}

/** Interval of etcd's passes for unsynced watches, in milliseconds: a request may wait this long. */
const passIntervalMs = 100;
/** Maximum duration of one pass of etcd, in milliseconds: it accepts no write meanwhile. */
const maxPassMs = 500;
/** Number of slow passes in a row that end the backfill, as a response may be late for other reasons. */
const maxCostly = 3;
/**
 * Time that etcd takes to look up the previous object of one event, in milliseconds. The lookups delay its response, but
 * block nothing else.
 */
const lookUpMs = 0.005;
/** A watch reads etcd's revision, is created, and gets its response. */
const roundTripsPerResponse = 3;
/** Pause after each chunk, in durations of its pass: etcd's store is blocked at most a quarter of the time. */
const pauseShare = 3;
const minPauseMs = 20;
const maxPauseMs = 2_000;
/** Maximum number of failures of the store in a row. */
const maxFailures = 5;

/**
 * Reads a store's past from the newest event to the oldest, in chunks: first small and quick ones, then as large as one
 * pass of etcd serves, with pauses between them. Each chunk is delivered before the next one is requested, so the
 * target soon has the newest events.
 *
 * Chunks before `eagerRevision` are read only once `fillTo` requests them.
 *
 * The older a chunk is, the more it costs etcd, which reads from there to the current revision in each pass and blocks
 * its store meanwhile. So the backfill ends when a chunk costs too much.
 */
export class WindowBackfill {
  readonly #options: BackfillOptions;
  readonly #sizing = new ChunkSizing();
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  readonly #requested = new Condition();
  /** Everything after this revision is wanted. */
  #goal: number;
  #state: BackfillState = "running";
  #backfilledTo: number;
  #startRevision: number;
  #isCompacted = false;
  #events = 0;
  #failures = 0;
  /** Whether the store did not respond: it is asked again, however long it is away, as the Reflector does. */
  #isAway = false;
  #costly = 0;
  #failure: WatchFanoutError | undefined;

  constructor(options: BackfillOptions) {
    this.#options = options;
    this.#backoff = new Backoff(defaultBackoffBounds, options.random);
    this.#backfilledTo = options.endRevision;
    this.#startRevision = Math.min(options.startRevision, options.endRevision);
    this.#goal = Math.max(this.#startRevision, options.eagerRevision ?? 0);
  }

  get state(): BackfillState {
    return this.#state;
  }

  /** The target has everything after this revision. */
  get backfilledTo(): number {
    return this.#backfilledTo;
  }

  /** Nothing before this revision will be requested. */
  get startRevision(): number {
    return this.#startRevision;
  }

  /** Number of delivered events. */
  get events(): number {
    return this.#events;
  }

  /** Why it failed, if its state is `failed`. */
  get failure(): WatchFanoutError | undefined {
    return this.#failure;
  }

  /** Whether it may still deliver older events. */
  get isOpen(): boolean {
    return this.#state === "running" || this.#state === "paused";
  }

  /** Requests everything after `revision`, down to the start revision. */
  fillTo(revision: number): void {
    if (!this.isOpen || this.#backfilledTo <= revision) return;
    this.#goal = Math.min(this.#goal, revision);
    this.#state = "running";
    this.#requested.notify();
  }

  /** Fills until the backfill ends or is stopped. Calls `onProgress` after each chunk. */
  async run(onProgress: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (this.isOpen) {
      if (this.#backfilledTo <= this.#startRevision) {
        this.#end(this.#isCompacted ? "compacted" : "complete");
        break;
      }
      if (this.#backfilledTo <= this.#goal || this.#hasEnough) {
        this.#goal = this.#backfilledTo;
        this.#state = "paused";
        this.#options.target.release();
        await this.#requested.until(() => signal.aborted || this.#backfilledTo > this.#goal, {});
        continue;
      }
      try {
        await this.#options.queue.run(() => this.#next(signal, onProgress));
        if (this.#failures > 0 || this.#isAway)
          await pause(this.#options.clock, this.#backoff.next(), signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    }
  }

  /** Whether the events that are delivered without a request are there. */
  get #hasEnough(): boolean {
    const { eagerRevision, eagerEvents = Infinity } = this.#options;
    return this.#goal === eagerRevision && this.#events >= eagerEvents;
  }

  /** Nothing is delivered after this. Idempotent. */
  stop(): void {
    this.#end("stopped");
    this.#stopping.abort();
    this.#requested.notify();
  }

  async #next(signal: AbortSignal, onProgress: () => void): Promise<void> {
    const { clock, target } = this.#options;
    signal.throwIfAborted();
    const { room } = target;
    if (room.events <= 0 || room.bytes <= 0) return this.#end("full");
    // On request chunks have their full size: other streams soon resume from about there.
    const isEager = this.#goal === this.#options.eagerRevision;
    const reach = isEager ? Math.max(this.#goal, this.#startRevision) : this.#startRevision;
    const size = this.#sizing.next(this.#backfilledTo - reach, room);
    const roundTripMs = await this.#roundTripMs(signal);
    this.#isAway = roundTripMs === undefined;
    if (roundTripMs === undefined) return;
    const begun = clock.now();
    const { past, failure, firstMs } = await readPast(
      this.#options,
      startsOf(size, this.#backfilledTo, reach),
      this.#backfilledTo,
      maxChunkBytes,
      signal,
    );
    const tookMs = clock.now() - begun;
    this.#judge(size, past, failure);
    if (past !== undefined) await this.#handOver(past, signal);
    const events = past?.events.length ?? 0;
    const otherMs = passIntervalMs + lookUpMs * events + roundTripsPerResponse * roundTripMs;
    // A lower bound: the pass may have begun at once.
    const passMs = Math.max(0, firstMs - otherMs);
    this.#costly = passMs > maxPassMs ? this.#costly + 1 : 0;
    if (this.#costly >= maxCostly) this.#end("costly");
    onProgress();
    if (this.#state !== "running") return;
    const pauseMs = Math.max(minPauseMs, pauseShare * passMs + tookMs - firstMs);
    await pause(clock, Math.min(maxPauseMs, pauseMs), signal);
  }

  /**
   * Time that the store takes for a request without cost. On a busy machine responses are late by this. Undefined: it does not
   * respond.
   */
  async #roundTripMs(signal: AbortSignal): Promise<number | undefined> {
    const { clock, storage } = this.#options;
    const begun = clock.now();
    try {
      await storage.currentRevision(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (hasReason(error, "UPSTREAM_UNAVAILABLE")) return undefined;
      // The watches will fail with the same error.
      if (!(error instanceof WatchFanoutError)) throw error;
    }
    return clock.now() - begun;
  }

  /** The state that follows from the result of one chunk. */
  #judge(
    size: ChunkSize,
    past: PastEvents | undefined,
    failure: WatchFanoutError | undefined,
  ): void {
    const backfilledTo = past?.after ?? this.#backfilledTo;
    // The chunk exceeded its bound, or the storage's bound of one response.
    const isTooLarge = failure === undefined || failure.reason === "HISTORY_LOST";
    if (isTooLarge) {
      if (past === undefined && !this.#sizing.tooLarge(size)) this.#end("full");
      return;
    }
    if (hasReason(failure, "REVISION_TOO_OLD")) {
      const oldest = Number(failure.metadata["oldest_revision"] ?? Number.NaN);
      this.#isCompacted = true;
      // Events that may be compacted are not requested again.
      this.#startRevision =
        oldest > this.#startRevision ? Math.min(oldest, backfilledTo) : backfilledTo;
      return;
    }
    // Of a relay: its upstream reads older events of the store for a few of its clients at once.
    if (hasReason(failure, "RESUME_LIMITED")) this.#end("costly");
    else if (past === undefined) this.#failed(failure);
  }

  #failed(failure: WatchFanoutError): void {
    this.#failure = failure;
    if (++this.#failures >= maxFailures) this.#end("failed");
  }

  async #handOver(past: PastEvents, signal: AbortSignal): Promise<void> {
    const { confirmHistory, target } = this.#options;
    try {
      await confirmHistory(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof WatchFanoutError)) throw error;
      // The Reflector finds out whether the history has changed, and then stops this backfill.
      return this.#failed(error);
    }
    const prepended = await target.prepend(past, signal);
    signal.throwIfAborted();
    if (prepended === undefined) return this.#end("conflicting");
    this.#sizing.record(past);
    this.#failures = 0;
    this.#failure = undefined;
    this.#backoff.reset();
    this.#backfilledTo = prepended.after;
    this.#events += prepended.events;
    if (prepended.isFull) this.#end("full");
  }

  #end(state: BackfillState): void {
    if (this.isOpen) this.#state = state;
  }
}

/** The start revisions of the watches of a chunk that ends at `upTo`, ascending. */
function startsOf({ watches, revisions }: ChunkSize, upTo: number, reach: number): number[] {
  const starts: number[] = [];
  for (let after = upTo; starts.length < watches && after > reach; ) {
    after = Math.max(reach, after - revisions);
    starts.unshift(after);
  }
  return starts;
}

/**
 * Serializes the backfills of several resources of one store, chunk by chunk, so that all together cost the store no
 * more than one of them.
 */
export class BackfillQueue {
  #last: Promise<void> = Promise.resolve();

  /** Runs `work` after all work that was queued before it. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    try {
      return await work();
    } finally {
      resolve();
    }
  }
}
