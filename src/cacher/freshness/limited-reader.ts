import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import type {
  GetResult,
  ListRequest,
  ListResult,
  RevisionRequirement,
  Storage,
} from "../../storage/storage.ts";
import { takeChunk } from "../list/list-chunk.ts";
import { PageBuilder } from "../list/page-builder.ts";
import type { CacheGetRequest, CacheListRequest } from "../request/request.ts";
import { Filter } from "../state/filter.ts";
import type { UpstreamLimiter } from "./upstream-limiter.ts";

/** Maximum number of objects examined for a page with a predicate, which is short or empty if few of them match. */
const maxScanned = 50_000;
/** Maximum size of one response of the storage to a list with a predicate, in bytes. */
const responseBytes = 8 * 1024 * 1024;

export interface LimitedUpstreamReaderDeps {
  /** The resource's name. */
  readonly name: string;
  readonly storage: Pick<Storage, "get" | "list">;
  readonly limiter: UpstreamLimiter;
  readonly scheduler: TimeSliceScheduler;
  /** Checks a response before it is returned: resolves to it, or rejects. */
  readonly check: <T>(response: Promise<T>) => Promise<T>;
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
    const { owner = call, signal, selection, ...request } = call;
    const { name, storage, limiter, check } = this.#deps;
    const hasPredicate = selection !== undefined || request.predicate !== undefined;
    const upstreamRequest = {
      name: pageName(name, call),
      isCacheable: isCacheable(request.at),
      since,
      ask: (shared: AbortSignal) =>
        check(
          hasPredicate
            ? this.#listMatching({ ...call, owner, signal: shared }, owner, shared)
            : storage.list({ ...request, signal: shared }),
        ),
    };
    return limiter.run(owner, upstreamRequest, signal);
  }

  /** A page of matching objects. A storage would evaluate the predicate on a whole response at once. */
  async #listMatching(
    request: CacheListRequest,
    owner: object,
    signal: AbortSignal,
  ): Promise<ListResult> {
    const { storage, scheduler } = this.#deps;
    const { prefix, selection, predicate } = request;
    const filter = new Filter({ scope: { prefix }, selection, predicate, withPrevious: false });
    const page = new PageBuilder(request);
    const { limit, maxBytes = 0 } = request;
    const bytes = maxBytes === 0 ? Infinity : maxBytes;
    let { at } = request;
    for (;;) {
      const part: ListRequest = {
        ...{
          prefix,
          startAfter: page.next,
          limit: maxScanned,
          maxBytes: responseBytes,
          at,
          signal,
        },
      };
      const { revision, items, next } = await storage.list(part);
      at = { match: "EXACT", revision };
      const room = limit === 0 ? Infinity : limit - page.size;
      const bounds = { bytes, scanned: Infinity, items: room };
      const work = takeChunk(items, filter, bounds, undefined);
      const chunk = await scheduler.run(owner, work, signal);
      const isAdded = page.add({ ...chunk, last: chunk.last ?? next });
      const isFull = !isAdded || chunk.last !== undefined || page.scanned >= maxScanned;
      if (!isFull && page.next !== undefined) continue;
      return page.finish(revision, page.next === undefined ? 0 : undefined);
    }
  }
}

/** The identity of the page that a list requests; undefined if the predicate has no identity. */
function pageName(resource: string, request: CacheListRequest): string | undefined {
  const { prefix, startAfter, limit, maxBytes, at, predicate, selection, keysOnly } = request;
  if (selection === undefined && predicate !== undefined) return undefined;
  const selected = selection?.canonical ?? null;
  const bounds = [startAfter ?? null, limit, maxBytes ?? 0, keysOnly === true];
  return JSON.stringify(["list", resource, at, prefix, selected, ...bounds]);
}

/** Whether the response does not depend on when it is requested. */
function isCacheable({ match }: RevisionRequirement): boolean {
  return match === "EXACT";
}
