import type { Clock } from "../../base/clock.ts";
import { otherHistory, revisionTooOld, type WatchFanoutError } from "../../base/errors.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchBatch } from "../../model/event.ts";
import { checkWatch } from "../../storage/checks.ts";
import type { ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { PagedState } from "../catch-up/initial-state.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import { SnapshotState } from "../catch-up/state-snapshot.ts";
import type { CachedReads } from "../freshness/cache-reader.ts";
import type { SharedRevision } from "../freshness/current-revision.ts";
import type { RevisionWaiters } from "../freshness/revision-waiters.ts";
import type { StoredReads } from "../freshness/upstream-reader.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { EventWindow } from "../state/event-window-backfill.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** How large a page is where an initial state comes from the storage: what a slow reader may keep waiting. */
const storedPage = { limit: 500, maxBytes: 1024 * 1024 };

export interface WatchOpeningParts {
  readonly stored: StoredReads;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly window: EventWindow;
  readonly reads: CachedReads;
  readonly upstream: SharedRevision;
  readonly waiters: RevisionWaiters;
  /** Ends the watcher with what has gone wrong, whatever that is. */
  readonly fail: (watcher: CacheWatcher, error: unknown) => void;
  readonly snapshots: Snapshots;
  /** Where pieces of initial states are made. */
  readonly scheduler: TimeSliceScheduler;
}

/** For whom an initial state is asked of the storage, and since when. */
interface StoredStateTerms {
  readonly owner: object;
  readonly signal: AbortSignal;
  readonly since: number;
}

/** How a watch begins: from now, from a revision, or with the current state. */
export class WatchOpening {
  readonly #parts: WatchOpeningParts;

  constructor(parts: WatchOpeningParts) {
    this.#parts = parts;
  }

  /** Sets the watcher going. What goes wrong ends it. */
  begin(watcher: CacheWatcher, request: CacheWatchRequest): void {
    this.#begin(watcher, request).catch((error: unknown) => this.#parts.fail(watcher, error));
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
    const { historyId } = this.#parts.cache;
    if (known !== undefined && known !== "" && known !== historyId) {
      throw otherHistory(known, historyId);
    }
  }

  /** Answers with a bookmark, once the event window is filled that far, and goes on after it. */
  async #after(watcher: CacheWatcher, after: number | undefined): Promise<void> {
    const { cache, reads, window } = this.#parts;
    if (after !== undefined) await reads.checkExists(after);
    if (after !== undefined && window.isMissing(after)) {
      const giveUp = new AbortController();
      watcher.whenEnded(() => giveUp.abort());
      await window.until(after, giveUp.signal);
    }
    const revision = after ?? (await this.#now());
    if (revision < cache.history.floor.revision) throw this.#tooOld(revision);
    watcher.open(new WatchBatch(revision, []));
    this.#follow(watcher, revision);
  }

  /** The store's revision. Not before history, which may have begun anew while the store was asked. */
  async #now(): Promise<number> {
    const { cache, upstream } = this.#parts;
    for (;;) {
      const { history } = cache;
      const revision = await upstream.current();
      if (revision >= cache.history.floor.revision || history === cache.history) return revision;
    }
  }

  /** Sends the state at one revision, and goes on after that. */
  async #withState(watcher: CacheWatcher, request: CacheWatchRequest): Promise<void> {
    const { cache, clock, reads, scheduler, snapshots } = this.#parts;
    const { afterRevision: newerThan, owner = watcher } = request;
    const since = clock.now();
    // Whatever the client asks for: it may have seen all that is here already.
    const held = cache.changedAt;
    const giveUp = new AbortController();
    const { signal } = giveUp;
    watcher.whenEnded(() => giveUp.abort());
    if (newerThan !== undefined) await reads.checkExists(newerThan, signal);
    watcher.open(new WatchBatch(undefined, []));
    const at = newness(newerThan);
    const required = await reads.reach(at, signal);
    if (required === undefined) return this.#withStoredState(watcher, at, { owner, signal, since });
    const { state, node } = await snapshots.get(watcher.filter, Math.max(required, held));
    if (watcher.state === "ended") return;
    const onReady = this.#onPiece(watcher);
    const parts = { reader: watcher, scheduler, owner, signal, onReady };
    watcher.beginInitial(new SnapshotState(state, parts));
    watcher.follow(node);
  }

  /** Is called when the next piece of the watcher's initial state is there, or why it won't be. */
  #onPiece(watcher: CacheWatcher): (failure?: unknown) => void {
    return (failure) => {
      if (failure === undefined) watcher.poke();
      else this.#parts.fail(watcher, failure);
    };
  }

  /** The same where the cache is not new enough: the storage has the state, the cache what follows. */
  async #withStoredState(
    watcher: CacheWatcher,
    at: RevisionRequirement,
    { owner, signal, since }: StoredStateTerms,
  ): Promise<void> {
    const { stored } = this.#parts;
    const { key, prefix, selection, predicate } = watcher.filter;
    if (key !== undefined) {
      const { revision, object } = await stored.get({ key, at, owner, signal }, since);
      const items = object !== undefined && watcher.filter.matches(object) ? [object] : [];
      const page = { revision, items, next: undefined, remaining: 0 };
      watcher.beginInitial(new PagedState(page, neverAsked, () => {}));
      this.#follow(watcher, revision);
      return;
    }
    const list = (where: RevisionRequirement, startAfter?: string): Promise<ListResult> =>
      stored.list(
        {
          ...{ prefix, startAfter, ...storedPage, at: where, owner, signal },
          ...(selection === undefined ? { predicate } : { selection }),
        },
        since,
      );
    const first = await list(at);
    const exactly: RevisionRequirement = { match: "EXACT", revision: first.revision };
    const following = (startAfter: string): Promise<ListResult> => list(exactly, startAfter);
    watcher.beginInitial(new PagedState(first, following, this.#onPiece(watcher)));
    this.#follow(watcher, first.revision);
  }

  /** Lets the watcher go on after `revision`, as soon as the cache has got there. */
  #follow(watcher: CacheWatcher, revision: number): void {
    const { cache, waiters } = this.#parts;
    const follow = (): void => {
      const node = cache.history.find(revision);
      if (node === undefined) watcher.fail(this.#tooOld(revision));
      else watcher.follow(node);
    };
    if (cache.revision >= revision) follow();
    else if (watcher.state !== "ended") watcher.whenEnded(waiters.add(revision, follow));
  }

  #tooOld(revision: number): WatchFanoutError {
    return revisionTooOld(revision, this.#parts.cache.history.floor.revision);
  }
}

function neverAsked(): never {
  throw new Error("There is but one page.");
}

function newness(newerThan: number | undefined): RevisionRequirement {
  if (newerThan === undefined) return { match: "LINEARIZABLE" };
  if (newerThan === 0) return { match: "ANY" };
  return { match: "NOT_OLDER_THAN", revision: newerThan };
}
