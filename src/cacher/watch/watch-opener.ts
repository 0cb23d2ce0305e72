import type { Clock } from "../../base/clock.ts";
import { otherHistory, revisionTooOld, type WatchFanoutError } from "../../base/errors.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchBatch } from "../../model/event.ts";
import { checkWatch } from "../../storage/checks.ts";
import type { ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { cursorAfter } from "../catch-up/cursor.ts";
import { PagedInitialState } from "../catch-up/initial-state.ts";
import { PendingSource } from "../catch-up/pending-source.ts";
import { SnapshotInitialState } from "../catch-up/snapshot-initial-state.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import type { CursorOrigin, SourceContext, WatchSource } from "../catch-up/watch-source.ts";
import type { CacheReader } from "../freshness/cache-reader.ts";
import type { CurrentRevision } from "../freshness/current-revision.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { UpstreamReader } from "../freshness/upstream-reader.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { EventWindowBackfill } from "../state/event-window-backfill.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** Page size for an initial state from the storage: how much a slow client may keep in memory. */
const upstreamPage = { limit: 500, maxBytes: 1024 * 1024 };

export interface WatchOpenerDeps {
  readonly upstreamReader: UpstreamReader;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly backfill: EventWindowBackfill;
  readonly cacheReader: CacheReader;
  readonly currentRevision: CurrentRevision;
  readonly waiters: RevisionWaiters;
  /** The parts of the Cacher that the watchers' sources use. */
  readonly context: SourceContext;
  /** Ends the watcher with an error of any kind. */
  readonly fail: (watcher: CacheWatcher, error: unknown) => void;
  readonly snapshots: Snapshots;
  /** Builds chunks of initial states. */
  readonly scheduler: TimeSliceScheduler;
}

/** A watch that is being opened. */
interface Opening {
  readonly watcher: CacheWatcher;
  readonly request: CacheWatchRequest;
  /** Its first source. */
  readonly source: PendingSource;
}

/** A pending source that is resolved when the cache reaches the revision that it begins after. */
interface Resumption {
  readonly watcher: CacheWatcher;
  readonly source: PendingSource;
  readonly origin: CursorOrigin;
}

/** The owner of a read of the storage, and when the watch was requested, in milliseconds. */
interface UpstreamStateOptions {
  readonly owner: object;
  readonly signal: AbortSignal;
  readonly since: number;
}

/** Opens watches: from now, from a revision, or with the current state. Sets up the sources of a watcher. */
export class WatchOpener {
  readonly #deps: WatchOpenerDeps;

  constructor(deps: WatchOpenerDeps) {
    this.#deps = deps;
  }

  /** Resolves the first source of the watcher. An error ends the watcher. */
  begin(opening: Opening): void {
    this.#begin(opening).catch((error: unknown) => this.#deps.fail(opening.watcher, error));
  }

  async #begin(opening: Opening): Promise<void> {
    const { request } = opening;
    checkWatch(request);
    this.#checkHistory(request.historyId);
    if (request.sendInitialEvents === true) {
      await this.#withState(opening);
    } else {
      await this.#after(opening);
    }
  }

  #checkHistory(known: string | undefined): void {
    const { historyId } = this.#deps.cache;
    if (known !== undefined && known !== "" && known !== historyId) {
      throw otherHistory(known, historyId);
    }
  }

  /** Begins after a revision, or the current one: sends a bookmark when the event window reaches back to it. */
  async #after({ watcher, request, source }: Opening): Promise<void> {
    const { cache, cacheReader, backfill } = this.#deps;
    const { afterRevision: after } = request;
    if (after !== undefined) await cacheReader.checkExists(after);
    if (after !== undefined && backfill.isMissing(after)) {
      const ended = new AbortController();
      watcher.whenEnded(() => ended.abort());
      await backfill.waitFor(after, ended.signal);
    }
    const revision = after ?? (await this.#now());
    if (revision < cache.eventWindow.floor.revision) throw this.#tooOld(revision);
    watcher.open(new WatchBatch(revision, []));
    this.#resumeAfter(revision, { watcher, source, origin: "resumed" });
  }

  /** The store's revision. Asks again if a relist moved the event window past the answer meanwhile. */
  async #now(): Promise<number> {
    const { cache, currentRevision } = this.#deps;
    for (;;) {
      const { eventWindow } = cache;
      const revision = await currentRevision.get();
      if (revision >= cache.eventWindow.floor.revision || eventWindow === cache.eventWindow)
        return revision;
    }
  }

  /** Begins with the state at one revision. */
  async #withState(opening: Opening): Promise<void> {
    const { cache, clock, cacheReader, context, scheduler, snapshots } = this.#deps;
    const { watcher, request } = opening;
    const { afterRevision: newerThan, owner = watcher } = request;
    const since = clock.now();
    // The state is at least this new, whatever the request: the client may have seen all of the cache before.
    const cachedRevision = cache.lastChangeRevision;
    const ended = new AbortController();
    const { signal } = ended;
    watcher.whenEnded(() => ended.abort());
    if (newerThan !== undefined) await cacheReader.checkExists(newerThan, signal);
    watcher.open(new WatchBatch(undefined, []));
    const at = revisionRequirement(newerThan);
    const required = await cacheReader.reach(at, signal);
    if (required === undefined)
      return this.#withUpstreamState(opening, at, { owner, signal, since });
    const { state, node } = await snapshots.get(watcher.filter, Math.max(required, cachedRevision));
    if (watcher.state === "ended") return;
    const onReady = this.#onChunk(watcher);
    const successor = cursorAfter(node, watcher, context, "initial");
    const deps = { reader: watcher, scheduler, owner, signal, onReady, successor };
    this.#start(opening, new SnapshotInitialState(state, deps));
  }

  #start({ watcher, source }: Pick<Opening, "watcher" | "source">, first: WatchSource): void {
    if (watcher.state === "ended") {
      first.drop();
      return;
    }
    source.resolve(first);
    watcher.notify();
  }

  /** Called when the next chunk of the watcher's initial state is available, or with the reason why it never is. */
  #onChunk(watcher: CacheWatcher): (failure?: unknown) => void {
    return (failure) => {
      if (failure === undefined) watcher.notify();
      else this.#deps.fail(watcher, failure);
    };
  }

  /** As `#withState`, if the cache is too old: the storage has the state, the cache will have the events after it. */
  async #withUpstreamState(
    opening: Opening,
    at: RevisionRequirement,
    { owner, signal, since }: UpstreamStateOptions,
  ): Promise<void> {
    const { upstreamReader } = this.#deps;
    const { watcher } = opening;
    const successor = new PendingSource();
    const resumption: Resumption = { watcher, source: successor, origin: "initial" };
    const { key, prefix, selection, predicate } = watcher.filter;
    if (key !== undefined) {
      const { revision, object } = await upstreamReader.get({ key, at, owner, signal }, since);
      const items = object !== undefined && watcher.filter.matches(object) ? [object] : [];
      const page = { revision, items, next: undefined, remaining: 0 };
      this.#start(opening, new PagedInitialState(page, noMorePages, () => {}, successor));
      this.#resumeAfter(revision, resumption);
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
    const onReady = this.#onChunk(watcher);
    this.#start(opening, new PagedInitialState(first, following, onReady, successor));
    this.#resumeAfter(first.revision, resumption);
  }

  /** Resolves the source to the events after `revision`, when the cache has reached it. */
  #resumeAfter(revision: number, resumption: Resumption): void {
    const { cache, context, waiters } = this.#deps;
    const { watcher, origin } = resumption;
    const resume = (): void => {
      const node = cache.eventWindow.find(revision);
      if (node === undefined) watcher.fail(this.#tooOld(revision));
      else this.#start(resumption, cursorAfter(node, watcher, context, origin));
    };
    if (cache.revision >= revision) resume();
    else if (watcher.state !== "ended") watcher.whenEnded(waiters.add(revision, resume));
  }

  #tooOld(revision: number): WatchFanoutError {
    return revisionTooOld(revision, this.#deps.cache.eventWindow.floor.revision);
  }
}

function noMorePages(): never {
  throw new Error("A single object has no second page.");
}

function revisionRequirement(newerThan: number | undefined): RevisionRequirement {
  if (newerThan === undefined) return { match: "LINEARIZABLE" };
  if (newerThan === 0) return { match: "ANY" };
  return { match: "NOT_OLDER_THAN", revision: newerThan };
}
