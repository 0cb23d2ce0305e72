import { hasReason, invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import type { Turns } from "../../base/turns.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import { checkSameHistory } from "../../storage/checks.ts";
import { scopeOfList } from "../../storage/key-scopes.ts";
import type {
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  RevisionRequirement,
  Storage,
} from "../../storage/storage.ts";
import { takeChunk } from "../list/list-chunk.ts";
import { canHave, notInList, OrderedPage } from "../list/ordered-page.ts";
import { PageBuilder } from "../list/page-builder.ts";
import { historyChangePending } from "../request/errors.ts";
import {
  type CacheGetRequest,
  type CacheListRequest,
  isInKeyOrder,
  viewName,
} from "../request/request.ts";
import type { ComponentContext } from "../state/component.ts";
import { Filter } from "../state/filter.ts";
import type { UpstreamLimiter } from "./upstream-limiter.ts";

type UpstreamReaderContext = Pick<ComponentContext, "name" | "storage" | "cache" | "scheduler">;

/** Confirms that the store still has the history that the cache holds. */
export type HistoryCheck = Pick<
  Reflector,
  "confirmHistory" | "confirmWatched" | "historyGeneration"
>;

/**
 * Reads that only the store can serve. Every response is confirmed to belong to the history that the cache holds:
 * while the upstream watch is broken, the store may have been restored from a backup, which its responses do not show,
 * and a client that continued from them would mix two histories. The limiter bounds concurrent reads.
 */
export class UpstreamReader implements Pick<Storage, "get" | "list" | "currentRevision"> {
  readonly #context: UpstreamReaderContext;
  readonly #history: HistoryCheck;
  readonly #reads: LimitedUpstreamReader;

  constructor(context: UpstreamReaderContext, limiter: UpstreamLimiter, history: HistoryCheck) {
    const { name, storage, scheduler } = context;
    this.#context = context;
    this.#history = history;
    this.#reads = new LimitedUpstreamReader({
      ...{ name, storage, scheduler, limiter },
      check: (response) => this.#ofThisHistory(response),
    });
  }

  /** `since`: when the call arrived, in the clock's milliseconds. Default: now. */
  get(request: CacheGetRequest, since?: number): Promise<GetResult> {
    return this.#reads.get(request, since);
  }

  /** `since`: see `get`. */
  list(request: CacheListRequest, since?: number): Promise<ListResult> {
    return this.#reads.list(request, since);
  }

  history(request: HistoryRequest): Promise<HistoryResult> {
    return this.#reads.history(request);
  }

  /** The store's revision, for callers that wait until the cache has reached it: see `Reflector.confirmWatched`. */
  async currentRevision(signal?: AbortSignal): Promise<number> {
    const { cache, storage } = this.#context;
    const { eventWindow, revision } = cache;
    const asked = storage.currentRevision(signal, cache.historyId).catch((error: unknown) => {
      throw pendingIfChanged(error);
    });
    const current = await this.#confirmed(asked, true);
    // Within one history the store's revision never falls below one that it has delivered.
    if (current < revision && cache.eventWindow === eventWindow) throw historyChangePending();
    return current;
  }

  /** Rejects with UPSTREAM_UNAVAILABLE if the store may have another history than the cache. */
  async confirmHistory(): Promise<void> {
    try {
      await this.#history.confirmHistory();
    } catch (error) {
      throw pendingIfChanged(error);
    }
  }

  /** Resolves to a response of this history, which may name it, and does then. Rejects as `confirmHistory`. */
  async #ofThisHistory<T extends Pick<GetResult, "historyId">>(pending: Promise<T>): Promise<T> {
    const response = await this.#confirmed(pending, false);
    const { historyId } = this.#context.cache;
    try {
      checkSameHistory(historyId, response.historyId);
    } catch (error) {
      throw pendingIfChanged(error);
    }
    // Not copied: that would make the array of a page's items.
    return Object.assign(response, { historyId });
  }

  /**
   * Rejects with UPSTREAM_UNAVAILABLE if the response may belong to another history. The generation is compared as
   * well, since the store may have responded, wholly or in part, before the cache took in its present history.
   * `isAwaited`: nothing is made of the response before the cache has reached it.
   */
  async #confirmed<T>(pending: Promise<T>, isAwaited: boolean): Promise<T> {
    const history = this.#history;
    const generation = history.historyGeneration;
    const response = await pending;
    try {
      await (isAwaited ? history.confirmWatched() : history.confirmHistory());
    } catch (error) {
      throw pendingIfChanged(error);
    }
    if (generation !== history.historyGeneration) throw historyChangePending();
    return response;
  }
}

/** The history that the store has now is not the cache's, which will follow. */
function pendingIfChanged(error: unknown): unknown {
  return hasReason(error, "HISTORY_CHANGED") ? historyChangePending(error) : error;
}

/** Maximum number of objects examined for a page with a predicate, which is short or empty if few of them match. */
const maxScanned = 50_000;
/** Maximum number of objects, and their estimated bytes, of a list that is sorted: each page of it reads all of them. */
const maxSorted = 100_000;
const maxSortedBytes = 64 * 1024 * 1024;
/** Maximum size of one response of the storage to a list with a predicate, in bytes. */
const responseBytes = 8 * 1024 * 1024;

export interface LimitedUpstreamReaderDeps {
  /** The resource's name. */
  readonly name: string;
  readonly storage: Pick<Storage, "get" | "list" | "history">;
  readonly limiter: UpstreamLimiter;
  readonly scheduler: Turns;
  /** Checks a response before it is returned: resolves to it, or rejects. */
  readonly check: <T extends Pick<GetResult, "historyId">>(response: Promise<T>) => Promise<T>;
}

/**
 * Reads one resource from its storage: the limiter bounds concurrent reads and shares equal ones, and selectors are
 * evaluated in time slices.
 */
export class LimitedUpstreamReader {
  readonly #deps: LimitedUpstreamReaderDeps;

  constructor(deps: LimitedUpstreamReaderDeps) {
    this.#deps = deps;
  }

  /** `since`: when the call arrived, in the clock's milliseconds. Default: now. */
  get(call: CacheGetRequest, since?: number): Promise<GetResult> {
    const { owner = call, signal, ...request } = call;
    const { name, storage, limiter, check } = this.#deps;
    const upstreamRequest = {
      name: JSON.stringify(["get", name, request.at, request.key]),
      isCacheable: isCacheable(request.at),
      since,
      ask: (shared: AbortSignal) => check(storage.get({ ...request, signal: shared })),
    };
    return limiter.run(owner, upstreamRequest, signal);
  }

  /** `since`: see `get`. */
  list(call: CacheListRequest, since?: number): Promise<ListResult> {
    const { owner = call, signal } = call;
    const { name, limiter, check } = this.#deps;
    const upstreamRequest = {
      name: pageName(name, call),
      isCacheable: isCacheable(call.at),
      since,
      ask: (shared: AbortSignal) => check(this.#ask(call, owner, shared)),
    };
    return limiter.run(owner, upstreamRequest, signal);
  }

  /** Rejects with INVALID_REQUEST if the storage has no histories. */
  history(call: HistoryRequest): Promise<HistoryResult> {
    const { owner = call, signal, ...request } = call;
    const { name, limiter, check } = this.#deps;
    const { key, upTo, limit, maxBytes, keysOnly } = request;
    const upstreamRequest = {
      name: JSON.stringify([
        "history",
        name,
        key,
        upTo ?? null,
        limit,
        maxBytes,
        keysOnly === true,
      ]),
      isCacheable: false,
      ask: (shared: AbortSignal) => check(this.#readHistory({ ...request, owner, signal: shared })),
    };
    return limiter.histories.run(owner, upstreamRequest, signal);
  }

  async #readHistory(request: HistoryRequest): Promise<HistoryResult> {
    const { storage, name } = this.#deps;
    const result = await storage.history?.(request);
    if (result !== undefined) return result;
    throw invalidRequest("resource", `The storage of ${JSON.stringify(name)} has no histories.`);
  }

  #ask(call: CacheListRequest, owner: object, signal: AbortSignal): Promise<ListResult> {
    const { selection, predicate, shard, view, countOnly, order: _o, owner: _, ...request } = call;
    if (countOnly === true) return this.#count(call, owner, signal);
    if (!isInKeyOrder(call)) return this.#listInOrder(call, owner, signal);
    const isProjected = view !== undefined && typeof view !== "string";
    if (selection !== undefined || predicate !== undefined || shard !== undefined || isProjected)
      return this.#listMatching(call, owner, signal);
    const page = { ...request, signal };
    return view === "KEYS" ? this.#listKeys(page) : this.#deps.storage.list(page);
  }

  /** A page of all objects, without their values. */
  async #listKeys(request: ListRequest): Promise<ListResult> {
    const page = await this.#deps.storage.list({ ...request, keysOnly: true });
    // A storage may return values nevertheless.
    const items = page.items.map((object) => object.withoutValue());
    return { ...page, items, chunks: undefined };
  }

  /** The number of matching objects. */
  async #count(request: CacheListRequest, owner: object, signal: AbortSignal): Promise<ListResult> {
    const all = { ...request, limit: 0, maxBytes: 0, view: "KEYS" } as const;
    let page = await this.#listMatching(all, owner, signal);
    const { revision, historyId } = page;
    let count = page.items.length;
    while (page.next !== undefined) {
      const at: RevisionRequirement = { match: "EXACT", revision };
      page = await this.#listMatching({ ...all, at, startAfter: page.next }, owner, signal);
      checkSameHistory(historyId, page.historyId);
      count += page.items.length;
    }
    return { revision, historyId, items: [], next: undefined, remaining: count };
  }

  /** A page in another order than that of the keys: reads the whole list, of which it holds about a page. */
  async #listInOrder(
    request: CacheListRequest,
    owner: object,
    signal: AbortSignal,
  ): Promise<ListResult> {
    const { name, storage, scheduler, check } = this.#deps;
    const { prefix, interval, startAfter } = request;
    const filter = filterOf(request);
    const keysOnly = needsOnlyKeys(request);
    let { at } = request;
    let historyId: string | undefined;
    let after: StoredObject | undefined;
    if (startAfter !== undefined) {
      if (!canHave(filter, startAfter)) throw notInList(startAfter);
      // Checked before it is refused: a store restored from a backup may lack the object.
      const {
        revision,
        object,
        historyId: found,
      } = await check(storage.get({ key: startAfter, at, signal }));
      if (object === undefined) throw notInList(startAfter);
      historyId = found;
      after = object;
      at = { match: "EXACT", revision };
    }
    const page = new OrderedPage(request, filter, after);
    for (let last: string | undefined; ; ) {
      const part = await storage.list({
        ...{ prefix, interval, startAfter: last, limit: maxScanned, maxBytes: responseBytes },
        ...{ at, keysOnly, signal },
      });
      const { revision, items, next, remaining = 0, historyId: found } = part;
      checkSameHistory(historyId, found);
      historyId ||= found;
      at = { match: "EXACT", revision };
      // Known before it is read, for most lists that are too large.
      if (page.examined + items.length + remaining > maxSorted) throw listTooLarge(name);
      await scheduler.run(owner, page.add(items), signal);
      if (page.examinedBytes > maxSortedBytes) throw listTooLarge(name);
      last = next;
      if (next === undefined) break;
    }
    return scheduler.run(owner, page.finish(at.revision, historyId), signal);
  }

  /** A page of matching objects, as the request shows them. */
  async #listMatching(
    request: CacheListRequest,
    owner: object,
    signal: AbortSignal,
  ): Promise<ListResult> {
    const { storage, scheduler } = this.#deps;
    const { prefix, interval } = request;
    const filter = filterOf(request);
    const keysOnly = needsOnlyKeys(request);
    const page = new PageBuilder(request);
    const { limit, maxBytes = 0 } = request;
    const bytes = maxBytes === 0 ? Infinity : maxBytes;
    let { at } = request;
    let historyId: string | undefined;
    for (;;) {
      const part: ListRequest = {
        ...{
          prefix,
          interval,
          startAfter: page.next,
          limit: maxScanned,
          maxBytes: responseBytes,
          at,
          keysOnly,
          signal,
        },
      };
      const { revision, historyId: found, items, next } = await storage.list(part);
      checkSameHistory(historyId, found);
      historyId ||= found;
      at = { match: "EXACT", revision };
      const room = limit === 0 ? Infinity : limit - page.size;
      const bounds = { bytes, scanned: Infinity, items: room };
      const work = takeChunk(items, filter, bounds, undefined);
      const chunk = await scheduler.run(owner, work, signal);
      const isAdded = page.add({ ...chunk, last: chunk.last ?? next });
      const isFull = !isAdded || chunk.last !== undefined || page.scanned >= maxScanned;
      if (!isFull && page.next !== undefined) continue;
      return page.finish(revision, page.next === undefined ? 0 : undefined, historyId);
    }
  }
}

/** What a list selects. */
function filterOf(request: CacheListRequest): Filter {
  return new Filter({ ...request, scope: scopeOfList(request), withPrevious: false });
}

/** Whether values are neither shown nor selected by. */
function needsOnlyKeys({ view, selection, predicate }: CacheListRequest): boolean {
  return view === "KEYS" && selection === undefined && predicate === undefined;
}

/** Refuses a list that would have to be read whole, in key order, before its first page is known. */
function listTooLarge(resource: string): WatchFanoutError {
  return new WatchFanoutError(
    "LIST_TOO_LARGE",
    `A list of ${JSON.stringify(resource)} that the cache can't answer is in another order than that of its keys only if it has ` +
      `at most ${maxSorted} objects before selectors, and ${maxSortedBytes} bytes. Narrow the range of keys, ask for key order, ` +
      "or, if the resource has a cache, for a newer revision.",
  );
}

/** The identity of the page that a list requests; undefined if the predicate has no identity. */
function pageName(resource: string, request: CacheListRequest): string | undefined {
  const { prefix, startAfter, limit, maxBytes, at, predicate, selection, keysOnly } = request;
  const { shard, view, countOnly, interval, order } = request;
  if (selection === undefined && predicate !== undefined) return undefined;
  const selected = selection?.canonical ?? null;
  const bounds = [startAfter ?? null, limit, maxBytes ?? 0, keysOnly === true];
  const shown = [shard?.canonical ?? null, viewName(view), countOnly === true];
  const range = interval === undefined ? null : [interval.from, interval.to ?? null];
  return JSON.stringify([
    "list",
    resource,
    at,
    prefix,
    selected,
    ...bounds,
    ...shown,
    range,
    order,
  ]);
}

/** Whether the response does not depend on when it is requested. */
function isCacheable({ match }: RevisionRequirement): boolean {
  return match === "EXACT";
}
