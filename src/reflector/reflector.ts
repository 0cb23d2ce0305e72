import { defaultBackoffBounds } from "../base/backoff.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../base/errors.ts";
import { OutageLog } from "../base/logger.ts";
import { SingleFlight } from "../base/single-flight.ts";
import { StreamBackoff } from "../base/stream-backoff.ts";
import { abortable, Condition, type WaitBounds } from "../base/wait.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import { checkSameHistory } from "../storage/checks.ts";
import type { Scope } from "../storage/storage.ts";
import { HistoryTracker, isProvable, unprovable } from "./history-tracker.ts";
import { ReflectorState } from "./reflector-state.ts";
import type { ReflectorOptions } from "./reflector-target.ts";
import { listState, revisionToList } from "./state-lister.ts";
import { WatchSession } from "./watch-session.ts";

export type {
  ListedState,
  ReflectorFailure,
  ReflectorOptions,
  ReflectorTarget,
  ReplaceCause,
} from "./reflector-target.ts";

/** How long a read waits for the list that decides whether its response is of the same history, in milliseconds. */
const listTimeoutMs = 3_000;

/**
 * Keeps a target equal to a storage, as client-go's Reflector does: lists, then watches from the list's revision;
 * resumes a broken watch from the last delivered revision; relists if that revision is lost. `ReflectorState` decides
 * which step is next.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #scope: Scope;
  readonly #state = new ReflectorState();
  readonly #history: HistoryTracker;
  /** Asks the store. Rejects with HISTORY_CHANGED, with REVISION_TOO_OLD if it can't say, or as the store fails. */
  readonly #confirmation: SingleFlight<void>;
  /** After a list: asks for its last change, and for the history's id. */
  readonly #continuation: SingleFlight<void>;
  /** Asks only for the history's id. */
  readonly #identification: SingleFlight<void>;
  readonly #backoff: StreamBackoff;
  readonly #outage: OutageLog;
  /** Notified after each delivered list and each recovery. */
  readonly #progress = new Condition();
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #watch: WatchSession | undefined;
  /** Ends the current pause. */
  #pausing: AbortController | undefined;

  constructor(options: ReflectorOptions) {
    const { storage, target, clock, scope = { prefix: "" } } = options;
    const { backoff = defaultBackoffBounds, random = Math.random } = options;
    this.#options = options;
    this.#scope = scope;
    const identify = (id: string): void => callTarget(() => target.identify?.(id));
    const has = target.has?.bind(target);
    this.#history = new HistoryTracker(storage, scope, identify, has && { has, clock });
    this.#confirmation = new SingleFlight(
      () => this.#history.confirm(this.#stopping.signal),
      clock,
    );
    this.#continuation = new SingleFlight(() => this.#history.check(this.#stopping.signal), clock);
    this.#identification = new SingleFlight(
      () => this.#history.checkId(this.#stopping.signal),
      clock,
    );
    const { reachability } = storage;
    this.#backoff = new StreamBackoff({ bounds: backoff, clock, random, reachability });
    this.#outage = new OutageLog(clock, options.logger);
  }

  /** Why the last attempt failed; undefined once anything was delivered since. */
  get failure(): WatchFanoutError | undefined {
    return this.#state.failure;
  }

  /** Number of watches that broke. */
  get reconnects(): number {
    return this.#state.reconnects;
  }

  /** Number of lists after the first one. */
  get relists(): number {
    return this.#state.relists;
  }

  /** Whether a watch follows the target's state, as far as is known. */
  get isWatching(): boolean {
    return this.#state.isWatching;
  }

  /** Whether that watch has delivered anything since the list or the failure before it, and so was confirmed. */
  get isFollowed(): boolean {
    return this.#state.isFollowed;
  }

  /** What the next attempt begins with: a list of the state, or a watch from the resume point. */
  get next(): "list" | "resume" {
    return this.#state.next;
  }

  /** Number of histories of which a state was delivered. */
  get historyGeneration(): number {
    return this.#state.historyGeneration;
  }

  /** Resolves when `historyGeneration` increases. */
  untilNextHistory(bounds: WaitBounds<void>): Promise<void> {
    const { historyGeneration } = this.#state;
    return this.#progress.until(() => this.#state.historyGeneration > historyGeneration, bounds);
  }

  /**
   * Confirms that the target's state belongs to the history that the store has now. Rejects with HISTORY_CHANGED if it
   * does not, and with the storage's error if that can't be found out. While a watch is open that has delivered anything,
   * asks only for the id, and only if the watch may outlive its history. Concurrent callers share one response. If the store
   * has compacted what is known of the history, waits up to 3 s for the list that follows.
   */
  confirmHistory(signal: AbortSignal = this.#stopping.signal): Promise<void> {
    if (!this.isWatching) return this.#confirm(this.#confirmation, signal);
    // The store may have been restored after the list, before the watch was open.
    if (!this.isFollowed && this.#history.canCheckState) {
      this.#options.storage.requestProgress();
      return this.#confirm(this.#continuation, signal);
    }
    const { watchOutlivesHistory = false } = this.#options.storage;
    return this.#confirm(watchOutlivesHistory ? this.#identification : undefined, signal);
  }

  /** The same for a revision that the watch is to reach: it does not in another history, so an open one is not asked about. */
  confirmWatched(): Promise<void> {
    const { signal } = this.#stopping;
    return this.#confirm(this.isWatching ? undefined : this.#confirmation, signal);
  }

  /**
   * Relists at once, without a pause: the store no longer has the history of this generation, as a write that began in
   * it has shown. Idempotent; has no effect for an older generation.
   */
  invalidate(historyGeneration: number): void {
    if (!this.#state.invalidate(historyGeneration)) return;
    this.#options.target.invalidate?.();
    this.#watch?.stop();
    this.#pausing?.abort();
  }

  /**
   * Runs until `stop`. Rejects only with a programming error: anything that the target throws, and any error of the
   * storage that is not a WatchFanoutError. A WatchFanoutError of the storage leads to a retry.
   */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /** Stops at once: nothing is delivered after this. Idempotent. */
  stop(): void {
    this.#stopping.abort();
    this.#watch?.stop();
  }

  /** Lists the whole state again, because the target has lost or corrupted its own. */
  relist(): void {
    if (this.#state.relist()) this.#watch?.stop();
  }

  async #confirm(by: SingleFlight<void> | undefined, signal: AbortSignal): Promise<void> {
    if (by === undefined) return;
    const { historyGeneration, lists } = this.#state;
    try {
      await abortable(by.run(), signal);
    } catch (error) {
      if (hasReason(error, "HISTORY_CHANGED")) this.invalidate(historyGeneration);
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
      await this.#awaitList(historyGeneration, lists, signal, error);
    }
  }

  /** The store has compacted what is known of the history, so the next list decides. */
  async #awaitList(
    historyGeneration: number,
    lists: number,
    signal: AbortSignal,
    cause: unknown,
  ): Promise<void> {
    const state = this.#state;
    const isDecided = (): boolean => state.lists > lists || state.isWatching;
    const deadline = { clock: this.#options.clock, ms: listTimeoutMs, expire: () => {} };
    await this.#progress.until(isDecided, { signal, deadline });
    if (state.historyGeneration !== historyGeneration) throw changedDuringList();
    if (isDecided()) return;
    throw upstreamUnavailable(
      "The store is compacted, so this replica can't confirm its history until it has relisted. Try again soon.",
      cause,
    );
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    let hasBegun = false;
    while (!signal.aborted) {
      try {
        if (!hasBegun) await this.#restore();
        hasBegun = true;
        await this.#listAndWatch();
      } catch (error) {
        if (error instanceof TargetFault) throw error.cause;
        if (signal.aborted) return;
        if (!(error instanceof WatchFanoutError)) throw error;
        await this.#backOff(error);
      }
    }
  }

  /**
   * Delivers the state that an earlier process has kept, if there is one. The storage counts as lost until the watch after
   * it has delivered anything, and so has been confirmed, as any watch that resumes.
   */
  async #restore(): Promise<void> {
    const { storage, target, loadKept } = this.#options;
    const { signal } = this.#stopping;
    const kept = await loadKept?.(signal);
    if (kept === undefined) return;
    if (!isProvable(kept, storage)) {
      const { logger } = this.#options;
      logger.warn({ problem: unprovable }, "a kept state is not used; its source is listed");
      return;
    }
    const { objects, revision, historyId, events } = kept;
    await this.#prepare(objects);
    await this.#prepare(events.flatMap(({ object, previous = object }) => [object, previous]));
    signal.throwIfAborted();
    this.#history.restore(kept);
    this.#state.restore(revision, notFollowedYet());
    callTarget(() =>
      target.replace({ objects, revision, historyId, current: revision, kept }, "start"),
    );
  }

  /** Lists or resumes, then watches until the watch ends. Rejects with why. */
  async #listAndWatch(): Promise<void> {
    const { signal } = this.#stopping;
    const isResumed = this.#state.next === "resume";
    if (isResumed) await this.#history.check(signal);
    else this.#state.resumeFrom(await this.#list());
    // `stop` and `relist` may have been called during either.
    const { position } = this.#state;
    if (signal.aborted || position === undefined) return;
    await this.#watchFrom(position, isResumed);
  }

  async #backOff(error: WatchFanoutError): Promise<void> {
    const { target, onFailure } = this.#options;
    const { from, isUrgent } = this.#state.fail(error);
    if (this.#state.cause === "history changed") callTarget(() => target.invalidate?.());
    const nextPauseMs = this.#backoff.next(error, 0);
    const pauseMs = isUrgent ? 0 : nextPauseMs;
    const { next } = this.#state;
    const { reason } = error;
    const text = next === "list" ? "relisting" : "resuming the watch";
    this.#outage.failed(`${reason}: ${text}`, { err: error, reason, from }, text);
    onFailure?.({ error, next, pauseMs, revision: from });
    if (pauseMs > 0) await this.#pauseFor(pauseMs);
  }

  async #pauseFor(ms: number): Promise<void> {
    const pausing = new AbortController();
    this.#pausing = pausing;
    await this.#backoff.wait(ms, 0, this.#stopping.signal, pausing.signal);
    this.#pausing = undefined;
  }

  /** Delivers the whole state and returns its revision. */
  async #list(): Promise<number> {
    const { storage, target, startsFromCached = false } = this.#options;
    const { signal } = this.#stopping;
    const { invalidations, cause: reason } = this.#state;
    const current = await revisionToList(storage, startsFromCached && reason === "start", signal);
    let historyId = await this.#findHistory(current, signal);
    const { historyId: listedId, ...state } = await listState(this.#options, current, signal);
    // The store may have been restored between the requests.
    checkSameHistory(historyId, listedId ?? (await storage.historyId(signal)));
    await this.#prepare(state.objects);
    signal.throwIfAborted();
    if (this.#state.cause === "history lost" && this.#conflictsWith(state)) {
      this.#state.changeHistory();
      historyId = await storage.renewHistory(this.#history.id, signal);
      signal.throwIfAborted();
    }
    // The listed state may belong to the history before the invalidation.
    if (invalidations !== this.#state.invalidations) throw changedDuringList();
    const { cause, isRecovery } = this.#state.beginReplace();
    this.#history.reset(historyId, state.objects, state.revision);
    callTarget(() => target.replace({ ...state, current, historyId }, cause));
    this.#state.endReplace(cause);
    this.#progress.notify();
    if (isRecovery) this.#recovered();
    return state.revision;
  }

  /**
   * Returns the id of the history that the store has now. If that is another history than the one that was followed,
   * and it still has the same id, gives it a new one first: other replicas detect the change by that.
   */
  async #findHistory(current: number, signal: AbortSignal): Promise<string> {
    const { storage } = this.#options;
    const { id: followedId } = this.#history;
    this.#state.compareWithLost(current);
    if (this.#state.cause === "history changed") return storage.renewHistory(followedId, signal);
    const historyId = await storage.historyId(signal);
    if (historyId === "") return this.#history.id;
    // Another replica has detected the change and written the new id.
    if (this.#history.id !== "" && historyId !== this.#history.id) this.#state.changeHistory();
    return historyId;
  }

  #conflictsWith(state: { objects: readonly StoredObject[]; revision: number }): boolean {
    return callTarget(() => this.#options.target.conflictsWith?.(state)) === true;
  }

  async #prepare(objects: readonly StoredObject[]): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await this.#options.target.prepare?.(objects, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw targetFault(error);
    }
  }

  /**
   * Delivers what follows `revision` until the watch breaks, and rejects with why. A watch delivers nothing before it is
   * confirmed that it continues the target's state: the store may have been restored before the watch was open. A resumed
   * watch compares the whole state. After a list it was moments before, so its last change and the history's id will do.
   */
  #watchFrom(revision: number, isResumed: boolean): Promise<void> {
    const { storage, clock, loadKept } = this.#options;
    const history = this.#history;
    const stream = storage.watch({
      scope: this.#scope,
      afterRevision: revision,
      historyId: history.id,
      withPrevious: false,
    });
    // If nothing is written, only progress shows that the failure is over.
    if (this.#state.failure !== undefined) storage.requestProgress();
    const confirm = isResumed
      ? (signal: AbortSignal) => history.checkState(signal)
      : (signal: AbortSignal) => history.check(signal);
    this.#watch = new WatchSession({
      stream,
      confirm: history.canCheckState ? confirm : undefined,
      deliver: (batch) => this.#deliver(batch),
      guard: (signal) => history.poll(clock, signal, loadKept !== undefined),
    });
    return this.#watch.ended;
  }

  #deliver(batch: WatchBatch): void {
    const { target } = this.#options;
    const { position } = this.#state;
    this.#history.advance(batch);
    callTarget(() => target.apply(batch));
    const isRecovery = this.#state.advance(position, batch.revision);
    this.#backoff.responded();
    if (!isRecovery) return;
    this.#progress.notify();
    this.#recovered();
  }

  #recovered(): void {
    const { onRecovered } = this.#options;
    this.#outage.ended("following the store again");
    callTarget(() => onRecovered?.());
  }
}

function notFollowedYet(): WatchFanoutError {
  return upstreamUnavailable(
    "The state was kept by an earlier process, and its source has not confirmed it since the start.",
  );
}

function changedDuringList(): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    "The store was restored to an older state during a list. It is relisted.",
    { metadata: { history_id: "" } },
  );
}

/** Wraps an error that the target threw: it is not the storage's, so a retry does not help. */
class TargetFault extends Error {}

/**
 * Calls the target.
 *
 * @throws TargetFault with the target's error as its cause
 */
function callTarget<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw targetFault(error);
  }
}

function targetFault(cause: unknown): TargetFault {
  return new TargetFault("The target failed.", { cause });
}
