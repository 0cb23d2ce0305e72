import { abortable } from "../../base/abort.ts";
import { historyChanged, revisionTooNew } from "../../base/errors.ts";
import { checkGet, checkList } from "../../storage/checks.ts";
import type { GetResult, ListResult, RevisionRequirement } from "../../storage/storage.ts";
import type { PageReader } from "../list/page-reader.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import type { ComponentContext } from "../state/component.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { Freshness } from "./freshness.ts";

/** How long a read waits for the cache to become new enough, in milliseconds. */
export const freshnessTimeoutMs = 3_000;

type CacheReaderContext = Pick<ComponentContext, "cache" | "clock" | "scheduler">;
type CacheReaderFreshness = Pick<Freshness, "upstreamReader" | "currentRevision" | "waiters">;

/** Reads from the cache where it has the answer, and from the store where it does not. */
export class CacheReader {
  readonly #context: CacheReaderContext;
  readonly #cache: WatchCache;
  readonly #freshness: CacheReaderFreshness;
  readonly #pageReader: PageReader;

  constructor(
    context: CacheReaderContext,
    freshness: CacheReaderFreshness,
    pageReader: PageReader,
  ) {
    this.#context = context;
    this.#cache = context.cache;
    this.#freshness = freshness;
    this.#pageReader = pageReader;
  }

  async get(request: CacheGetRequest): Promise<GetResult> {
    checkGet(request);
    const { scheduler, clock } = this.#context;
    const since = clock.now();
    const { signal, owner = request } = request;
    const answer = await this.#answer(request, () => {
      const work = this.#pageReader.get(request);
      // Most gets are one lookup in the state, and need not wait behind scans.
      const { done, value } = work.next();
      return done === true ? value : scheduler.run(owner, work, signal);
    });
    return answer ?? this.#freshness.upstreamReader.get(request, since);
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    checkList(request);
    const { scheduler, clock } = this.#context;
    const { upstreamReader } = this.#freshness;
    const since = clock.now();
    const { signal, owner = request } = request;
    if (this.#isBeyond(request)) {
      const wait = request.admit?.();
      if (wait !== undefined) await wait;
      return upstreamReader.list(request);
    }
    const answer = await this.#answer(request, () =>
      scheduler.run(owner, this.#pageReader.list(request), signal),
    );
    return answer ?? upstreamReader.list(request, since);
  }

  /**
   * Waits until the cache is new enough, then returns the answer of `read`; undefined if only the store can answer.
   * Repeats both if the cache is replaced meanwhile, since the answer may belong to another history.
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
   * Whether the request continues a list that the store began, since the cache was not new enough then, and still
   * is not. Another wait would not help, and a failure would break off the list midway.
   */
  #isBeyond({ at, startAfter }: CacheListRequest): boolean {
    return startAfter !== undefined && at.match === "EXACT" && at.revision > this.#cache.revision;
  }

  /**
   * Waits until the cache is as new as `at` requires, for up to 3 s, and resolves to the required revision; 0: any.
   * Resolves to undefined if a linearizable read has to be answered by the store, as the cache is not new enough
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
        const current = await abortable(this.#freshness.currentRevision.get(), signal);
        return (await this.#await(current, signal)) ? current : undefined;
      }
      case "NOT_OLDER_THAN":
      case "EXACT":
        await this.checkExists(at.revision, signal);
        if (await this.#await(at.revision, signal)) return at.revision;
        throw revisionTooNew(at.revision, this.#cache.revision);
    }
  }

  /** Rejects with HISTORY_CHANGED if the store itself has not reached `revision`. */
  async checkExists(revision: number, signal?: AbortSignal): Promise<void> {
    if (revision <= this.#cache.revision) return;
    const current = await abortable(this.#freshness.currentRevision.get(), signal);
    if (revision > current) throw historyChanged(revision, current, this.#cache.historyId);
  }

  async #await(revision: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#cache.revision >= revision) return true;
    const reached = await this.#freshness.waiters.wait(revision, freshnessTimeoutMs, signal);
    signal?.throwIfAborted();
    return reached;
  }
}
