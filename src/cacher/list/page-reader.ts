import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { intervalOf, type ListScope, scopeOfList } from "../../storage/key-scopes.ts";
import type { GetResult, ListResult } from "../../storage/storage.ts";
import { type CacheGetRequest, type CacheListRequest, isInKeyOrder } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import { Filter } from "../state/filter.ts";
import type { HistoricalSnapshot, HistoricalSnapshots } from "../state/historical-snapshots.ts";
import type { OrderedStore } from "../state/ordered-store.ts";
import { markOf } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CachedList } from "./cached-list.ts";
import type { ListCache } from "./list-cache.ts";
import { countMatching, takeChunk } from "./list-chunk.ts";
import { canHave, notInList, OrderedPage } from "./ordered-page.ts";
import { PageBuilder } from "./page-builder.ts";

/** Maximum number of objects examined for a page with a predicate, which is short or empty if few of them match. */
const maxScanned = 50_000;
/** Number of objects that are sorted for a page in an order of revisions and for those that follow it. */
const sortedAhead = 8_192;
/** Number of objects put on a page between two yields. */
const itemsPerStep = 4_096;

/**
 * The state that a page is read from. It is the cache's own until it is frozen, which makes the next write copy a path
 * of the tree: a page whose chunks are all cached never freezes it.
 */
interface PageSource {
  readonly revision: number;
  /** An immutable snapshot that contains all objects of the selection. */
  frozen(): OrderedStore;
  /** An immutable snapshot of all objects. */
  whole(): HistoricalSnapshot;
  /** Without raw keys, which lists leave out. */
  count(scope: ListScope, startAfter?: string): TimeSlicedWork<number>;
}

/** Serves reads from the cache, in time slices: pages of its lists, and single objects at older revisions. */
export class PageReader {
  readonly #cache: WatchCache;
  readonly #historicalSnapshots: HistoricalSnapshots;
  readonly #lists: ListCache;

  constructor(cache: WatchCache, historicalSnapshots: HistoricalSnapshots, lists: ListCache) {
    this.#cache = cache;
    this.#historicalSnapshots = historicalSnapshots;
    this.#lists = lists;
  }

  /** Returns the object at a revision that the cache has reached; undefined if only the store can serve. */
  *get({ key, at }: CacheGetRequest): TimeSlicedWork<GetResult | undefined> {
    const { historyId, lastChangeRevision, state } = this.#cache;
    const { revision } = at.match === "EXACT" ? at : this.#cache;
    if (at.match !== "EXACT" || lastChangeRevision <= revision)
      return { revision, historyId, object: state.get(key) };
    const found = yield* this.#historicalSnapshots.objectAt(key, revision);
    return found === undefined ? undefined : { revision, historyId, object: found.object };
  }

  /**
   * Returns the page, of the state when it begins; undefined if only the store can serve, or if the cached state is
   * replaced meanwhile.
   */
  *list(request: CacheListRequest): TimeSlicedWork<ListResult | undefined> {
    const { startAfter, selection, predicate } = request;
    const scope = scopeOfList(request);
    const { epoch, historyId } = this.#cache;
    const state = yield* this.#stateFor(request);
    if (state === undefined) return undefined;
    const { revision } = state;
    const filter = new Filter({ ...request, scope, withPrevious: false });
    const page = new PageBuilder(request);
    const isPartial =
      selection !== undefined || predicate !== undefined || request.shard !== undefined;
    if (request.countOnly === true) {
      const counted = isPartial
        ? yield* countMatching(state.frozen().objectsIn(filter.scope), filter)
        : yield* state.count(scope);
      return epoch === this.#cache.epoch ? page.finish(revision, counted, historyId) : undefined;
    }
    if (!isInKeyOrder(request)) {
      const isDescending = request.order === "KEY_DESCENDING";
      const ordered = isDescending
        ? yield* this.#descending(request, filter, state, isPartial)
        : yield* this.#byRevision(request, filter, state, epoch);
      const { next, remaining } = ordered;
      if (epoch !== this.#cache.epoch) return undefined;
      if (next !== undefined) {
        this.#historicalSnapshots.keep(revision, state.whole());
        if (isDescending && remaining !== undefined)
          this.#historicalSnapshots.expectPage(revision, below(scope, next), "", remaining);
      }
      return Object.assign(ordered, { historyId });
    }
    const list = this.#lists.open(filter);
    yield* this.#fill(page, list, state, isPartial);
    const { next } = page;
    // No snapshot of a replaced state may be retained. The caller reads again.
    if (epoch !== this.#cache.epoch) return undefined;
    if (next === undefined) return page.finish(revision, 0, historyId);
    // The client requests the next page at the same revision.
    this.#historicalSnapshots.keep(revision, state.whole());
    if (isPartial) return page.finish(revision, undefined, historyId);
    const known =
      startAfter === undefined
        ? undefined
        : this.#historicalSnapshots.following(revision, scope, startAfter);
    const following = known ?? (yield* state.count(scope, startAfter));
    if (epoch !== this.#cache.epoch) return undefined;
    const remaining = following - page.size;
    this.#historicalSnapshots.expectPage(revision, scope, next, remaining);
    return page.finish(revision, remaining, historyId);
  }

  /** A page in an order of revisions. */
  *#byRevision(
    request: CacheListRequest,
    filter: Filter,
    state: PageSource,
    epoch: number,
  ): TimeSlicedWork<ListResult> {
    const { startAfter } = request;
    const after = startAfter === undefined ? undefined : state.whole().state.get(startAfter);
    if (startAfter !== undefined && (after === undefined || !canHave(filter, startAfter)))
      throw notInList(startAfter);
    const { revision } = state;
    const list = `${request.order} ${filter.identity}`;
    // Most clients want only the first page.
    const least = after === undefined ? 0 : sortedAhead;
    const page = new OrderedPage(request, filter, after, least);
    const known = this.#historicalSnapshots.sorted(revision, list);
    const continued = known && (yield* page.continue(known, revision));
    if (continued !== undefined) return continued;
    yield* page.add(state.frozen().objectsIn(filter.scope));
    const made = yield* page.finish(revision, undefined);
    if (least === 0 || made.next === undefined || epoch !== this.#cache.epoch) return made;
    this.#historicalSnapshots.keep(revision, state.whole());
    this.#historicalSnapshots.keepSorted(revision, list, page.sorted);
    return made;
  }

  /** A page from the last key down. */
  *#descending(
    request: CacheListRequest,
    filter: Filter,
    state: PageSource,
    isPartial: boolean,
  ): TimeSlicedWork<ListResult> {
    const { revision } = state;
    const { startAfter, limit, maxBytes = 0 } = request;
    const objects = state.frozen().objectsIn(filter.scope, startAfter, true);
    const bounds = {
      ...{ bytes: maxBytes === 0 ? Infinity : maxBytes, scanned: maxScanned },
      items: limit === 0 ? Infinity : limit,
    };
    const page = new PageBuilder(request);
    page.add(yield* takeChunk(objects, filter, bounds, undefined));
    const { next } = page;
    if (next === undefined) return page.finish(revision, 0);
    if (isPartial) return page.finish(revision, undefined);
    const scope = scopeOfList(request);
    // The page before may be one that a client has made up, of a wider range whose objects it may not count.
    const isKnown = startAfter !== undefined && filter.includes(startAfter);
    const known = isKnown
      ? this.#historicalSnapshots.following(revision, below(scope, startAfter), "")
      : undefined;
    const remaining =
      known === undefined ? yield* state.count(below(scope, next)) : known - page.size;
    return page.finish(revision, remaining);
  }

  *#fill(
    page: PageBuilder,
    list: CachedList,
    state: PageSource,
    isPartial: boolean,
  ): TimeSlicedWork<void> {
    let nextStep = itemsPerStep;
    do {
      const chunk =
        list.find(page.next, state.revision) ??
        (yield* list.chunk(page.next, state.revision, state.frozen()));
      if (!page.add(chunk)) return;
      if (page.size < nextStep || page.next === undefined) continue;
      nextStep = page.size + itemsPerStep;
      state.frozen();
      yield;
    } while (page.next !== undefined && !(isPartial && page.scanned >= maxScanned));
  }

  *#stateFor({ at, selection }: CacheListRequest): TimeSlicedWork<PageSource | undefined> {
    const { lastChangeRevision, revision } = this.#cache;
    if (at.match !== "EXACT") return this.#current(revision, selection);
    // If nothing has changed since then, the state now is the state at that revision.
    if (lastChangeRevision <= at.revision) return this.#current(at.revision, selection);
    const past = yield* this.#historicalSnapshots.at(at.revision);
    if (past === undefined) return undefined;
    return {
      revision: at.revision,
      frozen: () => past.state,
      whole: () => past,
      count: (scope, startAfter) => past.state.countNamed(scope, startAfter),
    };
  }

  #current(revision: number, selection: Selection | undefined): PageSource {
    const cache = this.#cache;
    let past: HistoricalSnapshot | undefined;
    let part: OrderedStore | undefined;
    const whole = (): HistoricalSnapshot => {
      past ??= { state: cache.state.snapshot(), mark: markOf(cache) };
      return past;
    };
    return {
      revision,
      whole,
      frozen: () => {
        if (part !== undefined) return part;
        const { state } = whole();
        const superset = cache.stateFor(selection);
        part = superset === cache.state ? state : superset.snapshot();
        return part;
      },
      count: (scope, startAfter) => whole().state.countNamed(scope, startAfter),
    };
  }
}

/** The part of a scope that follows a key from the last key down. */
function below(scope: ListScope, to: string): ListScope {
  return { from: intervalOf(scope).from, to };
}
