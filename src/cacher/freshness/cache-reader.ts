import { abortable } from "../../base/abort.ts";
import type { Clock } from "../../base/clock.ts";
import { historyChanged, revisionTooNew } from "../../base/errors.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import { checkGet, checkList } from "../../storage/checks.ts";
import type { GetResult, ListResult, RevisionRequirement } from "../../storage/storage.ts";
import type { PageReader } from "../list/page-reader.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CurrentRevision } from "./current-revision.ts";
import type { RevisionWaiters } from "./revision-waiters.ts";
import type { UpstreamReader } from "./upstream-reader.ts";

/** How long a read waits for the cache to become new enough, in milliseconds. */
export const freshnessTimeoutMs = 3_000;

export interface CacheReaderDeps {
  readonly upstreamReader: UpstreamReader;
  readonly cache: WatchCache;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  readonly pageReader: PageReader;
  readonly scheduler: TimeSliceScheduler;
  readonly clock: Clock;
}

/** Reads from the cache where it has the answer, and from the storage where it does not. */
export class CacheReader {
  readonly #deps: CacheReaderDeps;
  readonly #cache: WatchCache;

  constructor(deps: CacheReaderDeps) {
    this.#deps = deps;
    this.#cache = deps.cache;
  }

  async get(request: CacheGetRequest): Promise<GetResult> {
    checkGet(request);
    const { upstreamReader, pageReader, scheduler, clock } = this.#deps;
    const since = clock.now();
    const { signal, owner = request } = request;
    const answer = await this.#answer(request, () => {
      const work = pageReader.get(request);
      // Most are answered by a look at the state, which is not worth waiting behind scans for.
      const { done, value } = work.next();
      return done === true ? value : scheduler.run(owner, work, signal);
    });
    return answer ?? upstreamReader.get(request, since);
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    checkList(request);
    const { upstreamReader, pageReader, scheduler, clock } = this.#deps;
    const since = clock.now();
    const { signal, owner = request } = request;
    if (this.#isBeyond(request)) {
      const wait = request.admit?.();
      if (wait !== undefined) await wait;
      return upstreamReader.list(request);
    }
    const answer = await this.#answer(request, () =>
      scheduler.run(owner, pageReader.list(request), signal),
    );
    return answer ?? upstreamReader.list(request, since);
  }

  /**
   * What `read` answers, once the cache is new enough. Undefined: the storage has to answer. Where the cache is
   * filled anew meanwhile all of it is done again, as what was read may be of another history.
   */
  async #answer<T>(
    request: CacheGetRequest | CacheListRequest,
    read: () => T | undefined | Promise<T | undefined>,
  ): Promise<T | undefined> {
    const { at, signal } = request;
    let { admit } = request;
    for (;;) {
      const { epoch } = this.#cache;
      const reached = await this.reach(at, signal);
      const wait = admit?.();
      admit = undefined;
      if (wait !== undefined) await wait;
      if (reached === undefined) return undefined;
      const answer = await read();
      if (epoch === this.#cache.epoch) return answer;
    }
  }

  /**
   * Whether this continues a listing that the storage began, as the cache was behind then and still is.
   * There is no sense in waiting again, and less in failing in the middle of it.
   */
  #isBeyond({ at, startAfter }: CacheListRequest): boolean {
    return startAfter !== undefined && at.match === "EXACT" && at.revision > this.#cache.revision;
  }

  /**
   * Waits until the cache is as new as `at` demands, and resolves to the revision that it demands; 0: any.
   * Undefined if the cache does not get there in time, so that the storage has to answer.
   *
   * Rejects with HISTORY_CHANGED for a revision above the store's own, with REVISION_TOO_NEW if the
   * cache does not get there in time, and as the storage does if it has to be asked and fails.
   */
  async reach(at: RevisionRequirement, signal?: AbortSignal): Promise<number | undefined> {
    signal?.throwIfAborted();
    switch (at.match) {
      case "ANY":
        return 0;
      case "LINEARIZABLE": {
        const current = await abortable(this.#deps.currentRevision.get(), signal);
        return (await this.#await(current, signal)) ? current : undefined;
      }
      case "NOT_OLDER_THAN":
      case "EXACT":
        await this.checkExists(at.revision, signal);
        if (await this.#await(at.revision, signal)) return at.revision;
        throw revisionTooNew(at.revision, this.#cache.revision);
    }
  }

  /** Rejects with HISTORY_CHANGED if the store itself has not got to `revision`. */
  async checkExists(revision: number, signal?: AbortSignal): Promise<void> {
    if (revision <= this.#cache.revision) return;
    const current = await abortable(this.#deps.currentRevision.get(), signal);
    if (revision > current) throw historyChanged(revision, current, this.#cache.historyId);
  }

  async #await(revision: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#cache.revision >= revision) return true;
    const reached = await this.#deps.waiters.wait(revision, freshnessTimeoutMs, signal);
    signal?.throwIfAborted();
    return reached;
  }
}
