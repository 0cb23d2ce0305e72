import {
  hasReason,
  invalidRequest,
  otherHistory,
  revisionTooOld,
  type WatchFanoutError,
} from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import { WatchBatch } from "../../model/event.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import { checkWatch } from "../../storage/checks.ts";
import type { ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { cursorAfter } from "../catch-up/cursor.ts";
import { DeepRead } from "../catch-up/deep-read.ts";
import type { DeepReads } from "../catch-up/deep-reads.ts";
import { PagedInitialState, SnapshotInitialState } from "../catch-up/initial-state.ts";
import type { Snapshots } from "../catch-up/snapshots.ts";
import {
  type CursorOrigin,
  PendingSource,
  type SourceContext,
  type WatchSource,
} from "../catch-up/watch-source.ts";
import type { Freshness } from "../freshness/freshness.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { ComponentContext } from "../state/component.ts";
import type { EventWindowBackfill } from "../state/event-window-backfill.ts";
import type { CacheWatcher } from "./cache-watcher.ts";

/** Page size for an initial state from the storage: how much a slow client may keep in memory. */
const upstreamPage = { limit: 500, maxBytes: 1024 * 1024 };

/** A read of any key, which need not exist, shows whether its revision is compacted. */
const anyKey = "-";

/**
 * Why the work for a watch is cancelled when the watch ends: no one receives it. One for all, since Node.js would make an
 * error with a stack trace for each, which is more than half of the cost of closing a watch.
 */
const watchEnded = new Error("The watch has ended.");

/** A watch that is being opened. */
interface Opening {
  readonly watcher: CacheWatcher;
  readonly request: CacheWatchRequest;
  /** Its first source. */
  readonly source: PendingSource;
}

/** A pending source that is resolved when the cache reaches the revision that it begins after. */
interface Resumption extends Opening {
  readonly origin: CursorOrigin;
}

/** The owner of a read of the storage, and when the watch was requested, in milliseconds. */
interface UpstreamStateOptions {
  readonly owner: object;
  readonly signal: AbortSignal;
  readonly since: number;
}

/** What a watch needs that resumes from before the event window. */
export interface DeepResume {
  readonly deepReads: DeepReads;
  /** Confirms that the store still has the history that the cache holds. */
  readonly history: Pick<Reflector, "confirmHistory" | "historyGeneration">;
  /** A watch that resumes from a part of the event window still missing waits for it. */
  readonly backfill: EventWindowBackfill;
}

/** Opens watches: from now, from a revision, or with the current state. Sets up the sources of a watcher. */
export class WatchOpener {
  readonly #context: ComponentContext;
  readonly #freshness: Freshness;
  readonly #snapshots: Snapshots;
  readonly #deepResume: DeepResume;
  readonly #sources: SourceContext;

  constructor(
    context: ComponentContext,
    freshness: Freshness,
    snapshots: Snapshots,
    deepResume: DeepResume,
    sources: SourceContext,
  ) {
    this.#context = context;
    this.#freshness = freshness;
    this.#snapshots = snapshots;
    this.#deepResume = deepResume;
    this.#sources = sources;
  }

  /** Resolves the first source of the watcher. An error ends the watcher. */
  begin(opening: Opening): void {
    this.#begin(opening).catch((error: unknown) => opening.watcher.fail(error));
  }

  async #begin(opening: Opening): Promise<void> {
    const { request } = opening;
    checkWatch(request, request.rawKeys);
    checkPredicate(request);
    checkInitialEvents(request);
    this.#checkHistory(request.historyId);
    if (request.sendInitialEvents === true) {
      await this.#withState(opening);
    } else {
      await this.#after(opening);
    }
  }

  #checkHistory(known: string | undefined): void {
    const { historyId } = this.#context.cache;
    if (known !== undefined && known !== "" && known !== historyId) {
      throw otherHistory(known, historyId);
    }
  }

  /** Begins after a revision, or the current one: sends a bookmark when it is certain that nothing is missing after it. */
  async #after(opening: Opening): Promise<void> {
    const { watcher, request } = opening;
    const { cache } = this.#context;
    const { backfill } = this.#deepResume;
    const { afterRevision: after } = request;
    if (after !== undefined) await this.#freshness.checkExists(after);
    if (after !== undefined && backfill.isMissing(after))
      await backfill.waitFor(after, signalOf(watcher));
    const revision = after ?? (await this.#now());
    const bookmark = new WatchBatch(revision, []);
    if (revision < cache.eventWindow.floor.revision)
      return this.#fromStore(opening, revision, bookmark);
    watcher.open(bookmark);
    this.#resumeAfter(revision, { ...opening, origin: "resumed" });
  }

  /**
   * Resolves the source to the events after `after`, which is before the event window: the store is read up to that.
   * `bookmark` is sent when the store has what comes next.
   */
  async #fromStore(opening: Opening, after: number, bookmark?: WatchBatch): Promise<void> {
    const { watcher, request } = opening;
    const { deepReads, history } = this.#deepResume;
    const { scope, owner = watcher } = request;
    const signal = signalOf(watcher);
    const refuse = (at: number) => this.#refuse(at, owner, signal);
    const refusal = refuse(after);
    if (refusal !== undefined) throw await refusal;
    const fail = (error: unknown): void => watcher.fail(error);
    const release = await deepReads.enter(owner, signal, fail);
    const read = new DeepRead(watcher, {
      ...{ component: this.#context, sources: this.#sources, scope, after, fail, release },
      refuse,
      confirmHistory: (stopping) => history.confirmHistory(stopping),
    });
    try {
      signal.throwIfAborted();
      await abortable(read.begin(), signal);
    } catch (error) {
      read.drop();
      throw error;
    }
    if (bookmark !== undefined) watcher.open(bookmark);
    this.#start(opening, read);
  }

  /**
   * The store's revision. Repeated if a relist moved the event window past it meanwhile, or the store has another history
   * since.
   */
  async #now(): Promise<number> {
    const { cache } = this.#context;
    const { currentRevision, upstreamReader } = this.#freshness;
    const { history } = this.#deepResume;
    for (;;) {
      const { eventWindow } = cache;
      const { historyGeneration } = history;
      const revision = await currentRevision.get();
      // It is sent with the cache's id before the cache has reached it, so an open watch that has delivered nothing yet
      // does not prove its history.
      await upstreamReader.confirmHistory();
      if (historyGeneration !== history.historyGeneration) continue;
      if (revision >= cache.eventWindow.floor.revision || eventWindow === cache.eventWindow)
        return revision;
    }
  }

  /** Begins with the state at one revision. */
  async #withState(opening: Opening): Promise<void> {
    const { cache, clock, scheduler } = this.#context;
    const freshness = this.#freshness;
    const { watcher, request } = opening;
    const { afterRevision: newerThan, owner = watcher } = request;
    const since = clock.now();
    // The state is at least this new, whatever the request: the client may have seen all of the cache before.
    const cachedRevision = cache.lastChangeRevision;
    const signal = signalOf(watcher);
    if (newerThan !== undefined) await freshness.checkExists(newerThan, signal);
    watcher.open(new WatchBatch(undefined, []));
    const at = revisionRequirement(newerThan);
    const required = await freshness.reach(at, signal);
    if (required === undefined)
      return this.#withUpstreamState(opening, at, { owner, signal, since });
    const { state, node } = await this.#snapshots.get(
      watcher.filter,
      Math.max(required, cachedRevision),
    );
    if (watcher.state === "ended") return;
    const onReady = this.#onChunk(watcher);
    const successor = cursorAfter(node, watcher, this.#sources, "initial");
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
      else watcher.fail(failure);
    };
  }

  /** As `#withState`, if the cache is too old: the storage has the state, the cache will have the events after it. */
  async #withUpstreamState(
    opening: Opening,
    at: RevisionRequirement,
    { owner, signal, since }: UpstreamStateOptions,
  ): Promise<void> {
    const { upstreamReader } = this.#freshness;
    const { watcher } = opening;
    const successor = new PendingSource();
    const resumption: Resumption = { ...opening, source: successor, origin: "initial" };
    const { key, prefix, interval, selection, predicate, shard, view } = watcher.filter;
    if (key !== undefined) {
      const { revision, object } = await upstreamReader.get({ key, at, owner, signal }, since);
      const { filter } = watcher;
      const isShown = object !== undefined && filter.matches(object);
      const items = isShown ? [filter.shown(object)] : [];
      const page = { revision, items, next: undefined, remaining: 0 };
      this.#start(opening, new PagedInitialState(page, noMorePages, () => {}, successor));
      this.#resumeAfter(revision, resumption);
      return;
    }
    const list = (where: RevisionRequirement, startAfter?: string): Promise<ListResult> =>
      upstreamReader.list(
        {
          ...{ prefix, interval, startAfter, ...upstreamPage, at: where, shard, view },
          ...{ owner, signal },
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

  /** Resolves the source to the events after `revision`, when the cache has reached it, or is beyond it. */
  #resumeAfter(revision: number, resumption: Resumption): void {
    const { cache } = this.#context;
    const { watcher, origin } = resumption;
    const resume = (): void => {
      const node = cache.eventWindow.find(revision);
      if (node !== undefined)
        this.#start(resumption, cursorAfter(node, watcher, this.#sources, origin));
      else this.#fromStore(resumption, revision).catch((error: unknown) => watcher.fail(error));
    };
    if (cache.revision >= revision) resume();
    else if (watcher.state !== "ended")
      watcher.whenEnded(this.#freshness.waiters.add(revision, resume));
  }

  /**
   * Resolves to the error for a watch that is too old whatever the store has, with the smallest revision that a watch may
   * begin after; undefined: the store decides.
   */
  #refuse(
    after: number,
    owner: object,
    signal: AbortSignal,
  ): Promise<WatchFanoutError> | undefined {
    const { revision, eventWindow } = this.#context.cache;
    const cached = eventWindow.floor.revision;
    const oldest = Math.min(cached, this.#deepResume.deepReads.oldest(revision));
    if (after >= oldest) return undefined;
    return this.#accepted(oldest, cached, owner, signal).then((accepted) =>
      revisionTooOld(after, accepted),
    );
  }

  /** The smallest revision from `oldest` on that the store has not compacted, or that the cache has without it: `cached`. */
  async #accepted(
    oldest: number,
    cached: number,
    owner: object,
    signal: AbortSignal,
  ): Promise<number> {
    if (oldest === cached) return cached;
    const { upstreamReader } = this.#freshness;
    try {
      const at: RevisionRequirement = { match: "EXACT", revision: oldest };
      await upstreamReader.get({ key: anyKey, at, owner, signal });
      return oldest;
    } catch (error) {
      // From a store that can't be asked no watch can resume either.
      if (!hasReason(error, "REVISION_TOO_OLD")) return cached;
      return Math.min(cached, Number(error.metadata["oldest_revision"] ?? cached));
    }
  }
}

/** Aborted when the watcher has ended. */
function signalOf(watcher: CacheWatcher): AbortSignal {
  const ended = new AbortController();
  watcher.whenEnded(() => ended.abort(watchEnded));
  return ended.signal;
}

/** Throws INVALID_REQUEST for a predicate without the previous objects that it needs. */
function checkPredicate({ predicate, withPrevious }: CacheWatchRequest): void {
  if (predicate === undefined || withPrevious) return;
  throw invalidRequest(
    "withPrevious",
    "A watch by content needs withPrevious: whether an object came or went depends on how it was.",
  );
}

/** Throws INVALID_REQUEST for an initial state that lists can't be put together to. */
function checkInitialEvents(request: CacheWatchRequest): void {
  const { rawKeys, eventTypes, sendInitialEvents } = request;
  if (sendInitialEvents !== true) return;
  if (eventTypes !== undefined && !eventTypes.includes("ADDED")) {
    throw invalidRequest(
      "event_types",
      "The initial state consists of ADDED events, which event_types leaves out: add the type, or ask for no state.",
    );
  }
  if (rawKeys !== true) return;
  throw invalidRequest(
    "sendInitialEvents",
    "A watch with raw keys has no initial state: read it, and watch after its revision.",
  );
}

function noMorePages(): never {
  throw new Error("A single object has no second page.");
}

function revisionRequirement(newerThan: number | undefined): RevisionRequirement {
  if (newerThan === undefined) return { match: "LINEARIZABLE" };
  if (newerThan === 0) return { match: "ANY" };
  return { match: "NOT_OLDER_THAN", revision: newerThan };
}
