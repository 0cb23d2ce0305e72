import type { Clock } from "../../base/clock.ts";
import { otherHistory, revisionTooOld, type WatchFanoutError } from "../../base/errors.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchBatch } from "../../model/event.ts";
import { checkWatch } from "../../storage/checks.ts";
import type { ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { PagedInitialState } from "../catch-up/initial-state.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import { SnapshotInitialState } from "../catch-up/state-snapshot.ts";
import type { CacheReader } from "../freshness/cache-reader.ts";
import type { CurrentRevision } from "../freshness/current-revision.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { UpstreamReader } from "../freshness/upstream-reader.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { EventWindowBackfill } from "../state/event-window-backfill.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** How large a page is where an initial state comes from the storage: what a slow reader may keep waiting. */
const upstreamPage = { limit: 500, maxBytes: 1024 * 1024 };

export interface WatchOpenerDeps {
  readonly upstreamReader: UpstreamReader;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly backfill: EventWindowBackfill;
  readonly cacheReader: CacheReader;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  /** Ends the watcher with what has gone wrong, whatever that is. */
  readonly fail: (watcher: CacheWatcher, error: unknown) => void;
  readonly snapshots: Snapshots;
  /** Where pieces of initial states are made. */
  readonly scheduler: TimeSliceScheduler;
}

/** For whom an initial state is asked of the storage, and since when. */
interface UpstreamStateOptions {
  readonly owner: object;
  readonly signal: AbortSignal;
  readonly since: number;
}

/** How a watch begins: from now, from a revision, or with the current state. */
export class WatchOpener {
  readonly #deps: WatchOpenerDeps;

  constructor(deps: WatchOpenerDeps) {
    this.#deps = deps;
  }

  /** Sets the watcher going. What goes wrong ends it. */
  begin(watcher: CacheWatcher, request: CacheWatchRequest): void {
    this.#begin(watcher, request).catch((error: unknown) => this.#deps.fail(watcher, error));
  }

  async #begin(watcher: CacheWatcher, request: CacheWatchRequest): Promise<void> {
    checkWatch(request);
    this.#checkHistory(request.historyId);
    if (request.sendInitialEvents === true) {
      await this.#withState(watcher, request);
    } else {
      await this.#after(watcher, request.afterRevision);
    }
  }

  #checkHistory(known: string | undefined): void {
    const { historyId } = this.#deps.cache;
    if (known !== undefined && known !== "" && known !== historyId) {
      throw otherHistory(known, historyId);
    }
  }

  /** Answers with a bookmark, once the event window is filled that far, and goes on after it. */
  async #after(watcher: CacheWatcher, after: number | undefined): Promise<void> {
    const { cache, cacheReader, backfill } = this.#deps;
    if (after !== undefined) await cacheReader.checkExists(after);
    if (after !== undefined && backfill.isMissing(after)) {
      const giveUp = new AbortController();
      watcher.whenEnded(() => giveUp.abort());
      await backfill.waitFor(after, giveUp.signal);
    }
    const revision = after ?? (await this.#now());
    if (revision < cache.eventWindow.floor.revision) throw this.#tooOld(revision);
    watcher.open(new WatchBatch(revision, []));
    this.#follow(watcher, revision);
  }

  /** The store's revision. Not before history, which may have begun anew while the store was asked. */
  async #now(): Promise<number> {
    const { cache, currentRevision } = this.#deps;
    for (;;) {
      const { eventWindow } = cache;
      const revision = await currentRevision.get();
      if (revision >= cache.eventWindow.floor.revision || eventWindow === cache.eventWindow)
        return revision;
    }
  }

  /** Sends the state at one revision, and goes on after that. */
  async #withState(watcher: CacheWatcher, request: CacheWatchRequest): Promise<void> {
    const { cache, clock, cacheReader, scheduler, snapshots } = this.#deps;
    const { afterRevision: newerThan, owner = watcher } = request;
    const since = clock.now();
    // Whatever the client asks for: it may have seen all that is here already.
    const held = cache.lastChangeRevision;
    const giveUp = new AbortController();
    const { signal } = giveUp;
    watcher.whenEnded(() => giveUp.abort());
    if (newerThan !== undefined) await cacheReader.checkExists(newerThan, signal);
    watcher.open(new WatchBatch(undefined, []));
    const at = revisionRequirement(newerThan);
    const required = await cacheReader.reach(at, signal);
    if (required === undefined)
      return this.#withUpstreamState(watcher, at, { owner, signal, since });
    const { state, node } = await snapshots.get(watcher.filter, Math.max(required, held));
    if (watcher.state === "ended") return;
    const onReady = this.#onChunk(watcher);
    const deps = { reader: watcher, scheduler, owner, signal, onReady };
    watcher.beginInitialState(new SnapshotInitialState(state, deps));
    watcher.resumeAfter(node);
  }

  /** Is called when the next piece of the watcher's initial state is there, or why it won't be. */
  #onChunk(watcher: CacheWatcher): (failure?: unknown) => void {
    return (failure) => {
      if (failure === undefined) watcher.notify();
      else this.#deps.fail(watcher, failure);
    };
  }

  /** The same where the cache is not new enough: the storage has the state, the cache what follows. */
  async #withUpstreamState(
    watcher: CacheWatcher,
    at: RevisionRequirement,
    { owner, signal, since }: UpstreamStateOptions,
  ): Promise<void> {
    const { upstreamReader } = this.#deps;
    const { key, prefix, selection, predicate } = watcher.filter;
    if (key !== undefined) {
      const { revision, object } = await upstreamReader.get({ key, at, owner, signal }, since);
      const items = object !== undefined && watcher.filter.matches(object) ? [object] : [];
      const page = { revision, items, next: undefined, remaining: 0 };
      watcher.beginInitialState(new PagedInitialState(page, noMorePages, () => {}));
      this.#follow(watcher, revision);
      return;
    }
    const list = (where: RevisionRequirement, startAfter?: string): Promise<ListResult> =>
      upstreamReader.list(
        {
          ...{ prefix, startAfter, ...upstreamPage, at: where, owner, signal },
          ...(selection === undefined ? { predicate } : { selection }),
        },
        since,
      );
    const first = await list(at);
    const exactly: RevisionRequirement = { match: "EXACT", revision: first.revision };
    const following = (startAfter: string): Promise<ListResult> => list(exactly, startAfter);
    watcher.beginInitialState(new PagedInitialState(first, following, this.#onChunk(watcher)));
    this.#follow(watcher, first.revision);
  }

  /** Lets the watcher go on after `revision`, as soon as the cache has got there. */
  #follow(watcher: CacheWatcher, revision: number): void {
    const { cache, waiters } = this.#deps;
    const follow = (): void => {
      const node = cache.eventWindow.find(revision);
      if (node === undefined) watcher.fail(this.#tooOld(revision));
      else watcher.resumeAfter(node);
    };
    if (cache.revision >= revision) follow();
    else if (watcher.state !== "ended") watcher.whenEnded(waiters.add(revision, follow));
  }

  #tooOld(revision: number): WatchFanoutError {
    return revisionTooOld(revision, this.#deps.cache.eventWindow.floor.revision);
  }
}

function noMorePages(): never {
  throw new Error("There is but one page.");
}

function revisionRequirement(newerThan: number | undefined): RevisionRequirement {
  if (newerThan === undefined) return { match: "LINEARIZABLE" };
  if (newerThan === 0) return { match: "ANY" };
  return { match: "NOT_OLDER_THAN", revision: newerThan };
}
