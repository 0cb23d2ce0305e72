import type { Clock } from "../../base/clock.ts";
import { historyChanged, revisionTooNew } from "../../base/errors.ts";
import { SingleFlight } from "../../base/single-flight.ts";
import { abortable } from "../../base/wait.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import type { CacheObserver, ComponentContext, Replacement } from "../state/component.ts";
import { RevisionWaiters } from "./revision-waiters.ts";
import type { UpstreamLimiter } from "./upstream-limiter.ts";
import { type HistoryCheck, UpstreamReader } from "./upstream-reader.ts";

/** How long a request waits for the cache to become new enough, in milliseconds. */
const freshnessTimeoutMs = 3_000;

/**
 * Knows how new the cache has to be, and waits until it is: the store's current revision, the requests that wait for
 * the cache to reach a revision, and the reads that only the store can serve.
 */
export class Freshness implements CacheObserver {
  readonly upstreamReader: UpstreamReader;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly #context: ComponentContext;
  /** Stops the progress requests that the cache needs to become ready. */
  #stopWaiting = (): void => {};

  /** `history` confirms that the store still has the history that the cache holds. */
  constructor(context: ComponentContext, limiter: UpstreamLimiter, history: HistoryCheck) {
    const { source, clock } = context;
    const upstreamReader = new UpstreamReader(context, limiter, history);
    this.#context = context;
    this.upstreamReader = upstreamReader;
    this.currentRevision = new CurrentRevision(() => upstreamReader.currentRevision(), clock);
    this.waiters = new RevisionWaiters(clock, () => source.requestProgress());
  }

  reset({ state, cause }: Replacement): void {
    if (cause === "history changed") this.currentRevision.forget();
    const readyAt = this.#context.readiness.listed(state.current);
    this.#stopWaiting();
    // The missing revisions may be of keys outside this resource, which only progress notifications report.
    if (readyAt !== undefined && readyAt > state.revision) {
      this.#stopWaiting = this.waiters.add(readyAt, () => {});
    }
  }

  advanced(revision: number): void {
    const { name, logger, readiness } = this.#context;
    if (readiness.reached(revision)) {
      logger.info({ resource: name, revision }, "the cache is ready");
    }
    this.waiters.reached(revision);
  }

  /**
   * Waits until the cache is as new as `at` requires, for up to 3 s, and resolves to the required revision; 0: any.
   * Resolves to undefined if a linearizable read has to be served by the store, as the cache is not new enough
   * in time.
   *
   * Rejects with HISTORY_CHANGED for a revision above the store's own, with REVISION_TOO_NEW if the cache does not
   * reach the given revision in time, and with the store's error if its current revision can't be read.
   */
  async reach(at: RevisionRequirement, signal?: AbortSignal): Promise<number | undefined> {
    signal?.throwIfAborted();
    switch (at.match) {
      case "ANY":
        return 0;
      case "LINEARIZABLE": {
        const current = await abortable(this.currentRevision.get(), signal);
        return (await this.reachKnown(current, signal)) ? current : undefined;
      }
      case "NOT_OLDER_THAN":
      case "EXACT":
        await this.checkExists(at.revision, signal);
        if (await this.reachKnown(at.revision, signal)) return at.revision;
        throw revisionTooNew(at.revision, this.#context.cache.revision);
    }
  }

  /** Rejects with HISTORY_CHANGED if the store itself has not reached `revision`. */
  async checkExists(revision: number, signal?: AbortSignal): Promise<void> {
    const { cache } = this.#context;
    if (revision <= cache.revision) return;
    const current = await abortable(this.currentRevision.get(), signal);
    if (revision > current) throw historyChanged(revision, current, cache.historyId);
  }

  /** Ends all waits, and refuses reads from now on. Idempotent. */
  close(): void {
    this.waiters.close();
    this.#context.readiness.close();
  }

  /**
   * Waits for a revision that the store is known to have had, for up to 3 s, or `timeoutMs`. Resolves to whether the cache has
   * reached it.
   */
  async reachKnown(
    revision: number,
    signal?: AbortSignal,
    timeoutMs: number = freshnessTimeoutMs,
  ): Promise<boolean> {
    if (this.#context.cache.revision >= revision) return true;
    return this.waiters.wait(revision, timeoutMs, signal);
  }
}

/**
 * The store's current revision, with as few requests as correctness permits: callers share a response, but a caller never
 * gets the response to a request that was sent before its call, since that would not include a write that completed in
 * between.
 */
export class CurrentRevision {
  readonly #requests: SingleFlight<number>;
  #newest = 0;
  /** Counts the histories, since a response from one is meaningless in the next. */
  #histories = 0;

  constructor(ask: () => Promise<number>, clock: Clock) {
    this.#requests = new SingleFlight(() => {
      const history = this.#histories;
      return ask().then((revision) => {
        if (history === this.#histories) this.#newest = Math.max(this.#newest, revision);
        return revision;
      });
    }, clock);
  }

  /** The newest revision that the store is known to have had. */
  get newest(): number {
    return this.#newest;
  }

  /** Resets `newest`: the store has another history, whose revisions may be lower. */
  forget(): void {
    this.#newest = 0;
    this.#histories++;
  }

  /** Resolves to the store's revision, read after this call. Rejects with the store's error. */
  get(): Promise<number> {
    return this.#requests.run();
  }
}
