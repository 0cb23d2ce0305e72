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

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;
/** How many bytes of objects are asked for at once where a predicate picks some of them. */
const answerBytes = 8 * 1024 * 1024;

export interface LimitedUpstreamReaderDeps {
  /** The resource's. */
  readonly name: string;
  readonly storage: Pick<Storage, "get" | "list">;
  readonly limiter: UpstreamLimiter;
  readonly scheduler: TimeSliceScheduler;
  /** What becomes of an answer, or a failure, before anyone gets it. */
  readonly check: <T>(answer: Promise<T>) => Promise<T>;
}

/**
 * The reads of one resource that go to its storage: no more at once than the limiter lets, the same only once, and
 * with selectors held against what comes in time slices.
 */
export class LimitedUpstreamReader {
  readonly #deps: LimitedUpstreamReaderDeps;

  constructor(deps: LimitedUpstreamReaderDeps) {
    this.#deps = deps;
  }

  /** `since`: when the call came, by the clock, if that was before now. */
  get(call: CacheGetRequest, since?: number): Promise<GetResult> {
    const { owner = call, signal, admit: _, ...request } = call;
    const { name, storage, limiter, check } = this.#deps;
    const upstreamRequest = {
      name: JSON.stringify(["get", name, request.at, request.key]),
      isCacheable: isCacheable(request.at),
      since,
      ask: (wanted: AbortSignal) => check(storage.get({ ...request, signal: wanted })),
    };
    return limiter.run(owner, upstreamRequest, signal);
  }

  /** As `get`. */
  list(call: CacheListRequest, since?: number): Promise<ListResult> {
    const { owner = call, signal, selection, admit: _, ...request } = call;
    const { name, storage, limiter, check } = this.#deps;
    const picks = selection !== undefined || request.predicate !== undefined;
    const upstreamRequest = {
      name: pageName(name, call),
      isCacheable: isCacheable(request.at),
      since,
      ask: (wanted: AbortSignal) =>
        check(
          picks
            ? this.#listPicked({ ...call, owner, signal: wanted }, owner, wanted)
            : storage.list({ ...request, signal: wanted }),
        ),
    };
    return limiter.run(owner, upstreamRequest, signal);
  }

  /** A page of what is picked: a storage would pick all of an answer in one go. */
  async #listPicked(
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
        ...{ prefix, startAfter: page.next, limit: maxScanned, maxBytes: answerBytes, at, signal },
      };
      const { revision, items, next } = await storage.list(part);
      at = { match: "EXACT", revision };
      const room = limit === 0 ? Infinity : limit - page.items.length;
      const bounds = { bytes, scanned: Infinity, items: room };
      const work = takeChunk(items, filter, bounds, undefined);
      const picked = await scheduler.run(owner, work, signal);
      const isTaken = page.add({ ...picked, last: picked.last ?? next });
      const isFull = !isTaken || picked.last !== undefined || page.scanned >= maxScanned;
      if (!isFull && page.next !== undefined) continue;
      const remaining = page.next === undefined ? 0 : undefined;
      return { revision, items: page.items, chunks: page.chunks, next: page.next, remaining };
    }
  }
}

/** What tells the page apart that a list asks of a resource; undefined if nothing does. */
function pageName(resource: string, request: CacheListRequest): string | undefined {
  const { prefix, startAfter, limit, maxBytes, at, predicate, selection, keysOnly } = request;
  if (selection === undefined && predicate !== undefined) return undefined;
  const picked = selection?.canonical ?? null;
  const bounds = [startAfter ?? null, limit, maxBytes ?? 0, keysOnly === true];
  return JSON.stringify(["list", resource, at, prefix, picked, ...bounds]);
}

/** Whether the answer is the same whenever it is asked for. */
function isCacheable({ match }: RevisionRequirement): boolean {
  return match === "EXACT";
}
