import { abortable } from "../abort.ts";
import { historyChanged, revisionTooNew } from "../errors.ts";
import { checkGet, checkList } from "../storage/checks.ts";
import type { GetRequest, GetResult, ListResult, RevisionRequirement } from "../storage/storage.ts";
import type { ListedRuns } from "./listed-runs.ts";
import type { OrderedState } from "./ordered-state.ts";
import { PageBuilder } from "./page-builder.ts";
import type { PastStates } from "./past-states.ts";
import type { CacheListRequest } from "./request.ts";
import type { RevisionWaiters } from "./revision-waiters.ts";
import type { Selection } from "./selection.ts";
import type { SharedRevision } from "./shared-revision.ts";
import type { StoredReads } from "./stored-reads.ts";
import type { WatchCache } from "./watch-cache.ts";

/** How long a read waits for the cache to become new enough, in milliseconds. */
export const freshnessTimeoutMs = 3_000;

/** A state, and the revision that it is said to be of. */
interface Answer {
  readonly revision: number;
  readonly state: OrderedState;
}

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;

/** Reads from the cache where it has the answer, and from the storage where it does not. */
export class CachedReads {
  readonly #stored: StoredReads;
  readonly #cache: WatchCache;
  readonly #upstream: SharedRevision;
  readonly #waiters: RevisionWaiters;
  readonly #pastStates: PastStates;
  readonly #runs: ListedRuns;

  constructor(
    stored: StoredReads,
    cache: WatchCache,
    upstream: SharedRevision,
    waiters: RevisionWaiters,
    pastStates: PastStates,
    runs: ListedRuns,
  ) {
    this.#stored = stored;
    this.#cache = cache;
    this.#upstream = upstream;
    this.#waiters = waiters;
    this.#pastStates = pastStates;
    this.#runs = runs;
  }

  async get(request: GetRequest): Promise<GetResult> {
    checkGet(request);
    const reached = await this.reach(request.at, request.signal);
    const answer = reached === undefined ? undefined : this.#stateFor(request.at);
    if (answer === undefined) return this.#stored.get(request);
    return { revision: answer.revision, object: answer.state.get(request.key) };
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    checkList(request);
    const { selection, owner: _, admit, ...rest } = request;
    const isBeyond = this.#isBeyond(request);
    const reached = isBeyond ? undefined : await this.reach(request.at, request.signal);
    const wait = admit?.();
    if (wait !== undefined) await wait;
    if (!isBeyond) {
      const answer = reached === undefined ? undefined : this.#stateFor(request.at, selection);
      if (answer !== undefined) return this.#page(request, answer);
    }
    return this.#stored.list({ ...rest, predicate: selection?.predicate ?? rest.predicate });
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
        const current = await abortable(this.#upstream.current(), signal);
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
    const current = await abortable(this.#upstream.current(), signal);
    if (revision > current) throw historyChanged(revision, current, this.#cache.historyId);
  }

  /** What answers `at`, which the cache has reached, and its revision. Undefined: the storage has to. */
  #stateFor(at: RevisionRequirement, selection?: Selection): Answer | undefined {
    const cache = this.#cache;
    if (at.match !== "EXACT") {
      return { revision: cache.revision, state: cache.stateFor(selection) };
    }
    const { revision } = at;
    // If nothing has changed since then, the state now is the state at that revision.
    const state =
      cache.changedAt <= revision ? cache.stateFor(selection) : this.#pastStates.at(revision);
    return state === undefined ? undefined : { revision, state };
  }

  async #await(revision: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#cache.revision >= revision) return true;
    const reached = await this.#waiters.wait(revision, freshnessTimeoutMs, signal);
    signal?.throwIfAborted();
    return reached;
  }

  #page(request: CacheListRequest, { revision, state }: Answer): ListResult {
    const { prefix, selection, predicate } = request;
    const page = new PageBuilder(request);
    const picks = selection !== undefined || predicate !== undefined;
    const runAfter = this.#runs.read(request, state, revision);
    do {
      if (!page.add(runAfter(page.next))) break;
    } while (page.next !== undefined && !(picks && page.scanned >= maxScanned));
    const { items, runs, next } = page;
    if (next === undefined) return { revision, items, runs, next, remaining: 0 };
    this.#expectNext(revision);
    if (picks) return { revision, items, runs, next, remaining: undefined };
    const remaining = this.#following(revision, state, request, items.length);
    this.#pastStates.expectPage(revision, prefix, next, remaining);
    return { revision, items, runs, next, remaining };
  }

  /** How many objects follow a page of so many. Counts them only where the page before is not known. */
  #following(
    revision: number,
    state: OrderedState,
    { prefix, startAfter }: CacheListRequest,
    taken: number,
  ): number {
    const known =
      startAfter === undefined
        ? undefined
        : this.#pastStates.following(revision, prefix, startAfter);
    return (known ?? state.count(prefix, startAfter)) - taken;
  }

  /** Whoever gets a page that is not the last comes back for the next one, of the same revision. */
  #expectNext(revision: number): void {
    if (revision >= this.#cache.changedAt) this.#pastStates.keepCurrent(revision);
  }
}
