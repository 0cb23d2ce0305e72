import type { Reflector } from "../../reflector/reflector.ts";
import type { CacheObserver, ComponentContext, Replacement } from "../state/component.ts";
import { CurrentRevision } from "./current-revision.ts";
import type { Readiness } from "./readiness.ts";
import { RevisionWaiters } from "./revision-waiters.ts";
import type { UpstreamLimiter } from "./upstream-limiter.ts";
import { UpstreamReader } from "./upstream-reader.ts";

/**
 * Knows how new the cache has to be, and waits until it is: the store's current revision, the requests that wait for
 * the cache to reach a revision, and the reads that only the store can answer.
 */
export class Freshness implements CacheObserver {
  readonly readiness: Readiness;
  readonly upstreamReader: UpstreamReader;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly #context: ComponentContext;
  /** Stops the progress requests that the cache needs to become ready. */
  #stopWaiting = (): void => {};

  /** `history` confirms that the store still has the history that the cache holds. */
  constructor(
    context: ComponentContext,
    readiness: Readiness,
    limiter: UpstreamLimiter,
    history: Pick<Reflector, "confirmHistory" | "historyGeneration">,
  ) {
    const { storage, clock } = context;
    const upstreamReader = new UpstreamReader(context, limiter, history);
    this.#context = context;
    this.readiness = readiness;
    this.upstreamReader = upstreamReader;
    this.currentRevision = new CurrentRevision(() => upstreamReader.currentRevision(), clock);
    this.waiters = new RevisionWaiters(clock, () => storage.requestProgress());
  }

  reset({ state, cause }: Replacement): void {
    if (cause === "history changed") this.currentRevision.forget();
    const readyAt = this.readiness.listed(state.current);
    this.#stopWaiting();
    // The missing revisions may be of keys outside this resource, which only progress notifications report.
    if (readyAt !== undefined && readyAt > state.revision) {
      this.#stopWaiting = this.waiters.add(readyAt, () => {});
    }
  }

  advanced(revision: number): void {
    const { name, logger } = this.#context;
    if (this.readiness.reached(revision)) {
      logger.info({ resource: name, revision }, "the cache is ready");
    }
    this.waiters.reached(revision);
  }

  /** Ends all waits, and refuses reads from now on. Idempotent. */
  close(): void {
    this.waiters.close();
    this.readiness.close();
  }
}
