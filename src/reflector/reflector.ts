import type { Logger } from "pino";
import { abortable } from "../base/abort.ts";
import { Backoff, type BackoffBounds, defaultBackoffBounds } from "../base/backoff.ts";
import { type Clock, pause } from "../base/clock.ts";
import {
  hasReason,
  invalidRequest,
  upstreamUnavailable,
  WatchFanoutError,
} from "../base/errors.ts";
import { SingleFlightCheck } from "../base/single-flight.ts";
import { memoryOverheadBytes, type WatchBatch } from "../model/event.ts";
import { estimatedBytes, type StoredObject } from "../model/object.ts";
import type { Scope, Storage } from "../storage/storage.ts";
import { HistoryTracker } from "./history/history-tracker.ts";
import { WatchSession } from "./watch-session.ts";

/** The whole state at one revision, as a Reflector hands it over. */
export interface ListedState {
  /** In key order. */
  readonly objects: readonly StoredObject[];
  readonly revision: number;
  /** The history that the revision belongs to; empty where that can't be known. */
  readonly historyId: string;
  /** The store's own revision when the listing began. Above `revision` where history follows. */
  readonly current: number;
}

/**
 * Why the state is handed over as a whole: it is the first; what came since the last batch is lost to
 * compaction; or the store's history has become another one.
 */
export type ReplaceCause = "start" | "history lost" | "history changed";

/** What a Reflector writes into. */
export interface ReflectorTarget {
  /**
   * Whether a state that was listed after history was lost can't have come from what the target has, so that
   * it is of another history. Default: it can.
   */
  conflictsWith?(state: Pick<ListedState, "objects" | "revision">): boolean;
  /**
   * Does with what was listed what takes long and can be done before it is handed over. Rejects with the signal's
   * reason.
   */
  prepare?(objects: readonly StoredObject[], signal: AbortSignal): Promise<void>;
  replace(state: ListedState, cause: ReplaceCause): void;
  /**
   * What was handed over is of a history that the store no longer has. `replace` follows as soon as the state has
   * been listed.
   */
  invalidate?(): void;
  /** The id of the history that was handed over has become known. */
  identify?(historyId: string): void;
  /** Whole revisions that follow, without gap or repetition, on what was handed over before. */
  apply(batch: WatchBatch): void;
}

/** What went wrong, and what is done about it. */
export interface ReflectorFailure {
  readonly error: WatchFanoutError;
  /** What comes next: the watch goes on after what was delivered, or the whole state is listed again. */
  readonly next: "resume" | "list";
  /** How long until then, in milliseconds. */
  readonly pauseMs: number;
  /** Where the watch was; undefined where a listing failed. */
  readonly revision: number | undefined;
}

export interface ReflectorOptions {
  readonly storage: Storage;
  readonly target: ReflectorTarget;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Numbers from 0 up to 1. Default: Math.random. */
  readonly random?: (() => number) | undefined;
  /** Which keys to reflect. Default: all. */
  readonly scope?: Scope | undefined;
  /** Objects to a page of a listing. Default 50,000: etcd answers few large ones for less. */
  readonly pageSize?: number | undefined;
  /**
   * How many bytes of objects a listing may have, by weight and what they take beside; beyond it the listing fails with
   * INVALID_REQUEST, and is tried again. Default: any number.
   */
  readonly maxBytes?: number | undefined;
  readonly backoff?: BackoffBounds | undefined;
  /** Told of each failure, once it is known what is done about it. What it throws, `run` rejects with. */
  readonly onFailure?: ((failure: ReflectorFailure) => void) | undefined;
  /** Told once anything has come again after failures, and been handed over. What it throws, `run` rejects with. */
  readonly onRecovered?: (() => void) | undefined;
}

/** How many bytes of objects one page of a listing has, where the listing is bounded in bytes. */
const maxPageBytes = 8 * 1024 ** 2;

/** How often to begin a listing anew within one attempt when compaction overtakes it. */
const listingTries = 4;

/** How long a read waits for the listing that tells whether its answer is of the same history, in milliseconds. */
const listingWaitMs = 3_000;

/** What the target threw. Whatever that is, it is not the storage's, and to try again mends nothing. */
class TargetFault extends Error {}

/**
 * Keeps a target equal to a storage: lists, then watches from the listing's revision; resumes a broken
 * watch from the last revision that was delivered; lists anew when that one is gone.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #scope: Scope;
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #watch: WatchSession | undefined;
  /** The resume point: everything up to and including it is in the target. */
  #position: number | undefined;
  /** Why the next listing will be one. */
  #cause: ReplaceCause = "start";
  /** Where the last watch broke whose position was given up. */
  #lostAt = 0;
  readonly #history: HistoryTracker;
  readonly #confirmation: SingleFlightCheck;
  /** Ends the pause that is under way. */
  #pausing: AbortController | undefined;
  /** Counts what voids the listing that is under way. */
  #invalidations = 0;
  /** Whether nothing has come since a listing was begun without a pause. */
  #hasHurried = false;
  #historyGeneration = 0;
  /** Counts the states that were handed over. */
  #listings = 0;
  /** Called when a state was handed over, and when a watch goes on after a failure. */
  readonly #onProgress = new Set<() => void>();
  #failure: WatchFanoutError | undefined;
  #reconnects = 0;
  #relists = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#scope = options.scope ?? { prefix: "" };
    this.#history = new HistoryTracker(options.storage, this.#scope, (historyId) =>
      handOver(() => options.target.identify?.(historyId)),
    );
    this.#confirmation = new SingleFlightCheck(
      () => this.#history.confirm(this.#stopping.signal),
      options.clock,
    );
    this.#backoff = new Backoff(
      options.backoff ?? defaultBackoffBounds,
      options.random ?? Math.random,
    );
  }

  /** Why the last attempt failed; undefined once anything has come since. */
  get failure(): WatchFanoutError | undefined {
    return this.#failure;
  }

  /** How often the watch broke and was taken up again. */
  get reconnects(): number {
    return this.#reconnects;
  }

  /** How often the state had to be listed anew after the first time. */
  get relists(): number {
    return this.#relists;
  }

  /** Whether a watch goes on from what the target has, as far as is known. */
  get isWatching(): boolean {
    return this.#failure === undefined && this.#position !== undefined;
  }

  /** Counts the histories of which a state was handed over. */
  get historyGeneration(): number {
    return this.#historyGeneration;
  }

  /** Resolves when `historyGeneration` becomes greater, or when the signal is aborted. */
  untilNextHistory(signal: AbortSignal): Promise<void> {
    const historyGeneration = this.#historyGeneration;
    return this.#until(() => this.#historyGeneration > historyGeneration, signal);
  }

  /**
   * Makes sure that what the target has is of the history that the store has now. Rejects with
   * HISTORY_CHANGED if it is not, and as the storage does if that can't be found out. As long as a watch goes
   * on that is beyond doubt, and nothing is asked. Those who call together share the answer. Where the store has
   * compacted what is known, the listing that follows tells, for which it waits 3 s.
   */
  async confirmHistory(signal: AbortSignal = this.#stopping.signal): Promise<void> {
    if (this.isWatching) return;
    const before = { historyGeneration: this.#historyGeneration, listings: this.#listings };
    try {
      await abortable(this.#confirmation.run(), signal);
    } catch (error) {
      if (hasReason(error, "HISTORY_CHANGED")) this.invalidate(before.historyGeneration);
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
      await this.#confirmByListing(before, signal, error);
    }
  }

  async #confirmByListing(
    {
      historyGeneration,
      listings,
    }: { readonly historyGeneration: number; readonly listings: number },
    signal: AbortSignal,
    cause: unknown,
  ): Promise<void> {
    const isNotified = (): boolean => this.#listings > listings || this.isWatching;
    const late = new AbortController();
    const timer = this.#options.clock.setTimeout(() => late.abort(), listingWaitMs);
    await this.#until(isNotified, AbortSignal.any([signal, late.signal]));
    timer.cancel();
    signal.throwIfAborted();
    if (this.#historyGeneration !== historyGeneration) throw invalidatedMeanwhile();
    if (isNotified()) return;
    throw upstreamUnavailable(
      "The store has been compacted, so that it can't be told whether its history is still the same. Try " +
        "again soon: by then this replica has listed anew.",
      cause,
    );
  }

  /** Resolves once `isReached`, looked at after each listing and recovery, or when the signal is aborted. */
  #until(isReached: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!isReached() && !signal.aborted) return;
        this.#onProgress.delete(look);
        signal.removeEventListener("abort", look);
        resolve();
      };
      this.#onProgress.add(look);
      signal.addEventListener("abort", look);
      look();
    });
  }

  #progressed(): void {
    for (const listener of [...this.#onProgress]) listener();
  }

  /**
   * What the target has is known to be of a history that the store no longer has, as a write has shown that began
   * when there had been so many eras. The state is listed at once, without a pause. Harmless if that is known already.
   */
  invalidate(historyGeneration: number): void {
    if (
      historyGeneration !== this.#historyGeneration ||
      this.#cause === "history changed" ||
      this.#cause === "start"
    )
      return;
    this.#invalidations++;
    this.#cause = "history changed";
    if (this.#position !== undefined) this.#giveUpPosition();
    this.#options.target.invalidate?.();
    this.#watch?.stop();
    this.#pausing?.abort();
  }

  /**
   * Runs until told to stop. Rejects only with what is a fault of ours: anything that the target
   * throws, and what no storage may fail with. What a storage may fail with is tried again.
   */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /** Stops at once: nothing is delivered after this. Harmless when called twice. */
  stop(): void {
    this.#stopping.abort();
    this.#watch?.stop();
  }

  /** Lists the whole state anew, as its target has lost or spoilt what it had. */
  relist(): void {
    // Otherwise it is being listed, or about to be.
    if (this.#position === undefined) return;
    this.#giveUpPosition();
    this.#watch?.stop();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        const isResumed = this.#position !== undefined;
        if (isResumed) await this.#history.check(signal);
        else this.#position = await this.#list();
        // Either may have been told so meanwhile: to stop, or to list anew.
        if (signal.aborted) return;
        if (this.#position !== undefined) await this.#follow(this.#position, isResumed);
      } catch (error) {
        if (error instanceof TargetFault) throw error.cause;
        if (signal.aborted) return;
        if (!(error instanceof WatchFanoutError)) throw error;
        await this.#recover(error);
      }
    }
  }

  #giveUpPosition(): void {
    this.#lostAt = this.#position ?? 0;
    this.#position = undefined;
    this.#relists++;
  }

  async #recover(error: WatchFanoutError): Promise<void> {
    const { logger } = this.#options;
    this.#failure = error;
    const from = this.#position;
    const lost = hasReason(error, "REVISION_TOO_OLD") || hasReason(error, "HISTORY_LOST");
    const changed = hasReason(error, "HISTORY_CHANGED");
    // Also where the position has been given up meanwhile.
    if (changed && (from ?? this.#lostAt) > 0) this.#cause = "history changed";
    if (from !== undefined) {
      this.#reconnects++;
      if (lost && !changed) this.#cause = "history lost";
      if (lost || changed) this.#giveUpPosition();
    }
    if (this.#cause === "history changed") handOver(() => this.#options.target.invalidate?.());
    // What is known to be of another history is not to be held for longer than it takes to list.
    const isUrgent = this.#cause === "history changed" && changed && !this.#hasHurried;
    this.#hasHurried ||= isUrgent;
    const pauseMs = isUrgent ? 0 : this.#backoff.next();
    logger.warn(
      { err: error, reason: error.reason, from, pauseMs: Math.round(pauseMs) },
      this.#position === undefined ? "listing anew" : "resuming the watch",
    );
    const next = this.#position === undefined ? "list" : "resume";
    this.#options.onFailure?.({ error, next, pauseMs, revision: from });
    if (pauseMs > 0) await this.#pauseFor(pauseMs);
  }

  async #pauseFor(ms: number): Promise<void> {
    const resting = new AbortController();
    this.#pausing = resting;
    await pause(this.#options.clock, ms, this.#stopping.signal, resting.signal);
    this.#pausing = undefined;
  }

  /**
   * The id of the history that the store has now. If it is another than the one that was followed, and
   * nobody has given it another id yet, then that is done first: others learn of it by that.
   */
  async #findHistory(current: number, signal: AbortSignal): Promise<string> {
    const { storage } = this.#options;
    if (this.#cause === "history lost" && current < this.#lostAt) this.#cause = "history changed";
    if (this.#cause === "history changed") return storage.renewHistory(this.#history.id, signal);
    const historyId = await storage.historyId(signal);
    if (historyId === "") return this.#history.id;
    // Someone else has found out, and given it its id.
    if (this.#history.id !== "" && historyId !== this.#history.id) this.#cause = "history changed";
    return historyId;
  }

  /** Hands the whole state over and returns its revision. */
  async #list(): Promise<number> {
    const { storage, target, onRecovered } = this.#options;
    const { signal } = this.#stopping;
    const disproofs = this.#invalidations;
    const current = await storage.currentRevision(signal);
    let historyId = await this.#findHistory(current, signal);
    const state = await this.#listFrom(current);
    await this.#prepare(state.objects);
    signal.throwIfAborted();
    if (this.#cause === "history lost" && handOver(() => target.conflictsWith?.(state)) === true) {
      this.#cause = "history changed";
      historyId = await storage.renewHistory(this.#history.id, signal);
      signal.throwIfAborted();
    }
    // What has been listed may be of the history that was followed before.
    if (disproofs !== this.#invalidations) throw invalidatedMeanwhile();
    const cause = this.#cause;
    this.#cause = "history lost";
    this.#history.reset(historyId, state.objects, state.revision);
    const hadFailed = this.#failure !== undefined;
    this.#failure = undefined;
    handOver(() => target.replace({ ...state, current, historyId }, cause));
    this.#listings++;
    if (cause !== "history lost") this.#historyGeneration++;
    this.#progressed();
    if (hadFailed) handOver(() => onRecovered?.());
    return state.revision;
  }

  async #prepare(objects: readonly StoredObject[]): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await this.#options.target.prepare?.(objects, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw new TargetFault("The target failed.", { cause: error });
    }
  }

  /** The state at `revision`, or at a later one if that is compacted. */
  async #listFrom(revision: number): Promise<Pick<ListedState, "objects" | "revision">> {
    let at = revision;
    for (let tries = 1; ; tries++) {
      try {
        return { objects: await this.#listAt(at), revision: at };
      } catch (error) {
        if (!hasReason(error, "REVISION_TOO_OLD") || tries === listingTries) throw error;
        const oldest = Number(error.metadata["oldest_revision"] ?? Number.NaN);
        const { storage } = this.#options;
        at = oldest > at ? oldest : await storage.currentRevision(this.#stopping.signal);
      }
    }
  }

  async #listAt(revision: number): Promise<readonly StoredObject[]> {
    const { storage, pageSize = 50_000, maxBytes = 0 } = this.#options;
    const { signal } = this.#stopping;
    const at = { match: "EXACT", revision } as const;
    if ("key" in this.#scope) {
      const { object } = await storage.get({ key: this.#scope.key, at, signal });
      return object === undefined ? [] : [object];
    }
    const { prefix } = this.#scope;
    const objects: StoredObject[] = [];
    // A page that is bounded in objects alone may be of any size.
    const pageBytes = Math.min(maxBytes, maxPageBytes);
    let startAfter: string | undefined;
    let bytes = 0;
    do {
      const page = await storage.list({
        ...{ prefix, startAfter, at, signal },
        limit: pageSize,
        maxBytes: pageBytes,
      });
      for (const object of page.items) {
        objects.push(object);
        bytes += estimatedBytes(object) + memoryOverheadBytes;
      }
      if (maxBytes > 0 && bytes > maxBytes) throw stateTooLarge(maxBytes);
      startAfter = page.next;
    } while (startAfter !== undefined);
    return objects;
  }

  /**
   * Delivers what comes after `revision` until the watch breaks, and rejects with why. Where the watch is resumed, not
   * before it is certain that it goes on from the state that the target has.
   */
  #follow(revision: number, isResumed: boolean): Promise<void> {
    const { storage, clock } = this.#options;
    const history = this.#history;
    const stream = storage.watch({
      scope: this.#scope,
      afterRevision: revision,
      withPrevious: false,
    });
    // If nothing is written, only progress tells that all is well again.
    if (this.#failure !== undefined) storage.requestProgress();
    const isDoubtful = isResumed && history.canCheckState;
    this.#watch = new WatchSession({
      stream,
      confirm: isDoubtful ? (signal) => history.checkState(signal) : undefined,
      deliver: (batch) => this.#apply(batch),
      guard: (signal) => history.poll(clock, signal),
    });
    return this.#watch.ended;
  }

  #apply(batch: WatchBatch): void {
    const before = this.#position;
    this.#history.advance(batch);
    handOver(() => this.#options.target.apply(batch));
    // Unless the target has had it given up.
    if (this.#position === before) this.#position = batch.revision ?? before;
    this.#backoff.reset();
    this.#hasHurried = false;
    if (this.#failure === undefined) return;
    this.#failure = undefined;
    this.#progressed();
    handOver(() => this.#options.onRecovered?.());
  }
}

function stateTooLarge(maxBytes: number): WatchFanoutError {
  return invalidRequest(
    "maxBytes",
    `The objects to hold take more than ${maxBytes} bytes, all that is allowed here. Follow fewer, by a prefix or ` +
      "selectors, or raise maxBytes.",
  );
}

function invalidatedMeanwhile(): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    "The store was put back to an older state while it was listed. It is listed anew.",
    { metadata: { history_id: "" } },
  );
}

function handOver<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new TargetFault("The target failed.", { cause: error });
  }
}
