import { abortable } from "../abort.ts";
import { historyChanged, revisionTooNew } from "../errors.ts";
import { checkGet, checkList } from "../storage/checks.ts";
import { type StoredObject, weight } from "../storage/object.ts";
import type {
  GetRequest,
  GetResult,
  ListResult,
  RevisionRequirement,
  Storage,
} from "../storage/storage.ts";
import type { CacheListRequest } from "./request.ts";
import type { RevisionWaiters } from "./revision-waiters.ts";
import type { SharedRevision } from "./shared-revision.ts";
import type { WatchCache } from "./watch-cache.ts";

/** How long a read waits for the cache to become new enough, in milliseconds. */
export const freshnessTimeoutMs = 3_000;

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;

/** Reads from the cache where it has the answer, and from the storage where it does not. */
export class CachedReads {
  readonly #storage: Storage;
  readonly #cache: WatchCache;
  readonly #upstream: SharedRevision;
  readonly #waiters: RevisionWaiters;

  constructor(
    storage: Storage,
    cache: WatchCache,
    upstream: SharedRevision,
    waiters: RevisionWaiters,
  ) {
    this.#storage = storage;
    this.#cache = cache;
    this.#upstream = upstream;
    this.#waiters = waiters;
  }

  async get(request: GetRequest): Promise<GetResult> {
    checkGet(request);
    const reached = await this.reach(request.at, request.signal);
    const revision = reached === undefined ? undefined : this.#answerableAs(request.at);
    if (revision === undefined) return this.#storage.get(request);
    return { revision, object: this.#cache.state.get(request.key) };
  }

  async list(request: CacheListRequest): Promise<ListResult> {
    checkList(request);
    const reached = await this.reach(request.at, request.signal);
    const revision = reached === undefined ? undefined : this.#answerableAs(request.at);
    if (revision !== undefined) return this.#page(request, revision);
    const { selection, ...rest } = request;
    return this.#storage.list({ ...rest, predicate: selection?.predicate ?? rest.predicate });
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

  /** The revision that the state as it stands now may be said to be of, if it answers `at` at all. */
  #answerableAs(at: RevisionRequirement): number | undefined {
    if (at.match !== "EXACT") return this.#cache.revision;
    // If nothing has changed since then, the state now is the state at that revision.
    return this.#cache.changedAt <= at.revision ? at.revision : undefined;
  }

  async #await(revision: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#cache.revision >= revision) return true;
    const reached = await this.#waiters.wait(revision, freshnessTimeoutMs, signal);
    signal?.throwIfAborted();
    return reached;
  }

  #page(request: CacheListRequest, revision: number): ListResult {
    const { prefix, startAfter, limit, maxBytes = 0, selection } = request;
    const predicate = selection?.predicate ?? request.predicate;
    const state = this.#cache.stateFor(selection);
    const items: StoredObject[] = [];
    let bytes = 0;
    let before = startAfter;
    let scanned = 0;
    for (const object of state.range(prefix, startAfter)) {
      if (++scanned > maxScanned && predicate !== undefined) {
        return { revision, items, next: before, remaining: undefined };
      }
      before = object.key;
      if (predicate !== undefined && !predicate(object)) continue;
      const last = items.at(-1);
      bytes += weight(object);
      const full = (limit > 0 && items.length >= limit) || (maxBytes > 0 && bytes > maxBytes);
      if (last !== undefined && full) {
        const remaining = predicate === undefined ? state.count(prefix, last.key) : undefined;
        return { revision, items, next: last.key, remaining };
      }
      items.push(object);
    }
    return { revision, items, next: undefined, remaining: 0 };
  }
}
