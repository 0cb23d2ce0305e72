import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { GetResult, ListResult } from "../../storage/storage.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import { Filter } from "../state/filter.ts";
import type { HistoricalSnapshot, HistoricalSnapshots } from "../state/historical-snapshots.ts";
import type { OrderedStore } from "../state/ordered-store.ts";
import { markOf } from "../state/retained-snapshots.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { CachedList } from "./cached-list.ts";
import type { ListCache } from "./list-cache.ts";
import { PageBuilder } from "./page-builder.ts";

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;
/** How many objects are put on a page between two yields. */
const itemsPerStep = 4_096;

/**
 * The state that a page is of. It is that of the cache until it is frozen, which costs whoever writes next a copy
 * of a path: pages whose chunks are all there never do it.
 */
interface PageSource {
  readonly revision: number;
  /** What the selection's objects are among, for good. */
  frozen(): OrderedStore;
  /** Everything, for good. */
  whole(): HistoricalSnapshot;
  count(prefix: string, startAfter: string | undefined): number;
}

/** What the cache itself answers, in time slices: pages of its lists, and single objects of the past. */
export class PageReader {
  readonly #cache: WatchCache;
  readonly #historicalSnapshots: HistoricalSnapshots;
  readonly #lists: ListCache;

  constructor(cache: WatchCache, historicalSnapshots: HistoricalSnapshots, lists: ListCache) {
    this.#cache = cache;
    this.#historicalSnapshots = historicalSnapshots;
    this.#lists = lists;
  }

  /** The object at a revision which the cache has reached. Undefined: the storage has to answer. */
  *get({ key, at }: CacheGetRequest): TimeSlicedWork<GetResult | undefined> {
    if (at.match !== "EXACT") {
      return { revision: this.#cache.revision, object: this.#cache.state.get(key) };
    }
    const { revision } = at;
    if (this.#cache.lastChangeRevision <= revision)
      return { revision, object: this.#cache.state.get(key) };
    const found = yield* this.#historicalSnapshots.objectAt(key, revision);
    return found === undefined ? undefined : { revision, object: found.object };
  }

  /**
   * The page, of what the cache holds when it begins. Undefined: the storage has to answer, or the cache was filled
   * anew meanwhile.
   */
  *list(request: CacheListRequest): TimeSlicedWork<ListResult | undefined> {
    const { prefix, startAfter, selection, predicate } = request;
    const { epoch } = this.#cache;
    const state = yield* this.#stateFor(request);
    if (state === undefined) return undefined;
    const { revision } = state;
    const list = this.#lists.open(
      new Filter({ scope: { prefix }, selection, predicate, withPrevious: false }),
    );
    const page = new PageBuilder(request);
    const picks = selection !== undefined || predicate !== undefined;
    yield* this.#fill(page, list, state, picks);
    const { items, chunks, next } = page;
    // Nothing is to be kept of a history that is no more. Whoever asked asks again.
    if (epoch !== this.#cache.epoch) return undefined;
    if (next === undefined) return { revision, items, chunks, next, remaining: 0 };
    // Whoever gets a page that is not the last comes back for the next one, of the same revision.
    this.#historicalSnapshots.keep(revision, state.whole());
    if (picks) return { revision, items, chunks, next, remaining: undefined };
    const known =
      startAfter === undefined
        ? undefined
        : this.#historicalSnapshots.following(revision, prefix, startAfter);
    const remaining = (known ?? state.count(prefix, startAfter)) - items.length;
    this.#historicalSnapshots.expectPage(revision, prefix, next, remaining);
    return { revision, items, chunks, next, remaining };
  }

  *#fill(
    page: PageBuilder,
    list: CachedList,
    state: PageSource,
    picks: boolean,
  ): TimeSlicedWork<void> {
    let nextStep = itemsPerStep;
    do {
      const chunk =
        list.find(page.next, state.revision) ??
        (yield* list.chunk(page.next, state.revision, state.frozen()));
      if (!page.add(chunk)) return;
      if (page.items.length < nextStep || page.next === undefined) continue;
      nextStep = page.items.length + itemsPerStep;
      state.frozen();
      yield;
    } while (page.next !== undefined && !(picks && page.scanned >= maxScanned));
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
      count: (prefix, startAfter) => past.state.count(prefix, startAfter),
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
        const among = cache.stateFor(selection);
        part = among === cache.state ? state : among.snapshot();
        return part;
      },
      count: (prefix, startAfter) => (past?.state ?? cache.state).count(prefix, startAfter),
    };
  }
}
