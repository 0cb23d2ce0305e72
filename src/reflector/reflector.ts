import type { Logger } from "pino";
import { type Clock, pause } from "../clock.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../errors.ts";
import type { WatchBatch } from "../storage/event.ts";
import type { StoredObject } from "../storage/object.ts";
import type { Scope, Storage, WatchStream } from "../storage/storage.ts";
import { Backoff, type BackoffBounds, defaultBackoffBounds } from "./backoff.ts";
import { FollowedHistory } from "./followed-history.ts";

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
  contradicts?(state: Pick<ListedState, "objects" | "revision">): boolean;
  /**
   * Does with what was listed what takes long and can be done before it is handed over. Rejects with the signal's
   * reason.
   */
  prepare?(objects: readonly StoredObject[], signal: AbortSignal): Promise<void>;
  replace(state: ListedState, cause: ReplaceCause): void;
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
  readonly backoff?: BackoffBounds | undefined;
  /** Told of each failure, once it is known what is done about it. What it throws, `run` rejects with. */
  readonly onFailure?: ((failure: ReflectorFailure) => void) | undefined;
  /** Told once anything has come again after failures, and been handed over. What it throws, `run` rejects with. */
  readonly onRecovered?: (() => void) | undefined;
}

/** How often to begin a listing anew within one attempt when compaction overtakes it. */
const listingTries = 4;

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
  #stream: WatchStream | undefined;
  /** Lets `#follow` return, once there is nothing to follow any more. */
  #leave: (() => void) | undefined;
  /** The resume point: everything up to and including it is in the target. */
  #position: number | undefined;
  /** Why the next listing will be one. */
  #cause: ReplaceCause = "start";
  /** Where the last watch broke whose position was given up. */
  #lostAt = 0;
  readonly #history: FollowedHistory;
  #failure: WatchFanoutError | undefined;
  #reconnects = 0;
  #relists = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#history = new FollowedHistory(options.storage, (historyId) =>
      handOver(() => options.target.identify?.(historyId)),
    );
    this.#scope = options.scope ?? { prefix: "" };
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

  /**
   * Makes sure that what the target has is of the history that the store has now. Rejects with
   * HISTORY_CHANGED if it is not, and as the storage does if that can't be found out. As long as a watch goes
   * on that is beyond doubt, and nothing is asked.
   */
  async confirmHistory(signal: AbortSignal = this.#stopping.signal): Promise<void> {
    if (this.#failure !== undefined) await this.#history.check(signal);
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
    this.#stream?.close();
    this.#leave?.();
  }

  /** Lists the whole state anew, as its target has lost or spoilt what it had. */
  relist(): void {
    // Otherwise it is being listed, or about to be.
    if (this.#position === undefined) return;
    this.#giveUpPosition();
    this.#leave?.();
    this.#stream?.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        if (this.#position === undefined) this.#position = await this.#list();
        else await this.#history.check(signal);
        // Either may have been told so meanwhile: to stop, or to list anew.
        if (signal.aborted) return;
        if (this.#position !== undefined) await this.#follow(this.#position);
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
    const pauseMs = this.#backoff.next();
    logger.warn(
      { err: error, reason: error.reason, from, pauseMs: Math.round(pauseMs) },
      this.#position === undefined ? "listing anew" : "resuming the watch",
    );
    const next = this.#position === undefined ? "list" : "resume";
    this.#options.onFailure?.({ error, next, pauseMs, revision: from });
    await pause(this.#options.clock, pauseMs, this.#stopping.signal);
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
    const current = await storage.currentRevision(signal);
    let historyId = await this.#findHistory(current, signal);
    const state = await this.#listFrom(current);
    await this.#prepare(state.objects);
    signal.throwIfAborted();
    if (this.#cause === "history lost" && handOver(() => target.contradicts?.(state)) === true) {
      this.#cause = "history changed";
      historyId = await storage.renewHistory(this.#history.id, signal);
      signal.throwIfAborted();
    }
    const cause = this.#cause;
    this.#cause = "history lost";
    this.#history.begin(historyId, state.objects);
    const hadFailed = this.#failure !== undefined;
    this.#failure = undefined;
    handOver(() => target.replace({ ...state, current, historyId }, cause));
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
    const { storage, pageSize = 50_000 } = this.#options;
    const { signal } = this.#stopping;
    const at = { match: "EXACT", revision } as const;
    if ("key" in this.#scope) {
      const { object } = await storage.get({ key: this.#scope.key, at, signal });
      return object === undefined ? [] : [object];
    }
    const { prefix } = this.#scope;
    const objects: StoredObject[] = [];
    let startAfter: string | undefined;
    do {
      const page = await storage.list({ prefix, startAfter, limit: pageSize, at, signal });
      for (const object of page.items) objects.push(object);
      startAfter = page.next;
    } while (startAfter !== undefined);
    return objects;
  }

  /** Delivers what comes after `revision` until the watch breaks, and rejects with why. */
  #follow(revision: number): Promise<void> {
    const stream = this.#options.storage.watch({
      scope: this.#scope,
      afterRevision: revision,
      withPrevious: false,
    });
    this.#stream = stream;
    // If nothing is written, only progress tells that all is well again.
    if (this.#failure !== undefined) this.#options.storage.requestProgress();
    const ending = new AbortController();
    const followed = new Promise<void>((resolve, reject) => {
      this.#leave = resolve;
      const fail = (error: unknown): void => {
        stream.close();
        reject(error);
      };
      const deliver = (): void => {
        try {
          for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
            this.#apply(batch);
          }
        } catch (error) {
          fail(error);
          return;
        }
        if (stream.ended === undefined) return;
        // Nobody but us closes it, and then `#leave` has been called or will be.
        reject(stream.ended ?? upstreamUnavailable("The storage closed the watch."));
      };
      stream.onReadable(deliver);
      deliver();
      this.#history.keepAsking(this.#options.clock, ending.signal).catch(fail);
    });
    return followed.finally(() => ending.abort());
  }

  #apply(batch: WatchBatch): void {
    const before = this.#position;
    this.#history.goOn(batch);
    handOver(() => this.#options.target.apply(batch));
    // Unless the target has had it given up.
    if (this.#position === before) this.#position = batch.revision ?? before;
    this.#backoff.reset();
    if (this.#failure === undefined) return;
    this.#failure = undefined;
    handOver(() => this.#options.onRecovered?.());
  }
}

function handOver<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new TargetFault("The target failed.", { cause: error });
  }
}
