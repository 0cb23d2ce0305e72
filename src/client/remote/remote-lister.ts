import type { Clock } from "../../base/clock.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { predicateIdentity } from "../../model/predicate.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { broken } from "../calls/decode.ts";
import type { Page } from "../watch/client-calls.ts";
import { type Continuation, ListContinuations } from "./list-continuations.ts";

/** Requests one page. */
export type FetchPage = (request: {
  readonly prefix: string;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly at: RevisionRequirement;
  readonly signal: AbortSignal | undefined;
}) => Promise<Page>;

/** Maximum page size on the wire. */
const maxPageSize = 2 ** 31 - 1;

/** Maximum number of consecutive pages without an object. A server examines tens of thousands of objects per page. */
const maxEmptyPages = 1_000;

/**
 * Lists over a connection. On the wire a list is continued by a page token, in a Storage by the last key. So the
 * token (and the remaining objects, if a page was split here) is kept for each key. If a continuation is not known,
 * the list is read from the beginning, and objects up to the key are skipped.
 */
export class RemoteLister {
  readonly #ask: FetchPage;
  readonly #continuations: ListContinuations;

  constructor(ask: FetchPage, clock?: Clock) {
    this.#ask = ask;
    this.#continuations = new ListContinuations(clock);
  }

  /** Drops all continuations. */
  close(): void {
    this.#continuations.clear();
  }

  async list(request: ListRequest): Promise<ListResult> {
    const { prefix, startAfter, limit, maxBytes = 0, at, predicate, signal } = request;
    const known = this.#continuationOf(request);
    const skipTo = known === undefined ? startAfter : undefined;
    const first = known?.at ?? at;
    const items: StoredObject[] = [];
    let bytes = 0;
    let revision = at.match === "EXACT" ? at.revision : 0;
    let { rest, token, following }: Omit<Continuation, "at"> = known ?? unread;
    let isBegun = known !== undefined;
    const order = new PageOrder(
      rest.at(-1)?.key ?? (known === undefined ? "" : (startAfter ?? "")),
    );
    for (;;) {
      let taken = 0;
      for (; taken < rest.length; taken++) {
        const object = rest[taken] as StoredObject;
        if (skipTo !== undefined && compareKeys(object.key, skipTo) <= 0) continue;
        if (predicate !== undefined && !predicate(object)) continue;
        const isFull = limit > 0 && items.length >= limit;
        const isTooMuch =
          maxBytes > 0 && items.length > 0 && bytes + estimatedBytes(object) > maxBytes;
        if (isFull || isTooMuch) break;
        items.push(object);
        bytes += estimatedBytes(object);
      }
      rest = rest.slice(taken);
      const isDone = isBegun && token === "";
      const isEnough = rest.length > 0 || (limit > 0 && items.length >= limit);
      if (isDone || isEnough) break;
      const all = limit === 0 || predicate !== undefined || skipTo !== undefined;
      const pageSize = all ? 0 : Math.min(limit - items.length, maxPageSize);
      const page = await this.#ask({ prefix, pageSize, pageToken: token, at: first, signal });
      isBegun = true;
      revision = page.revision;
      ({ items: rest, nextPageToken: token, remainingItemCount: following } = page);
      order.check(rest);
    }
    const isLast = rest.length === 0 && token === "";
    const next = isLast ? undefined : items.at(-1)?.key;
    if (next !== undefined) {
      const place = { at: first, rest, token, following };
      this.#continuations.keep(continuationName({ ...request, startAfter: next }, revision), place);
    }
    const remaining =
      following === undefined || predicate !== undefined ? undefined : following + rest.length;
    return { revision, items, next, remaining };
  }

  #continuationOf(request: ListRequest): Continuation | undefined {
    const { startAfter, at } = request;
    if (startAfter === undefined || at.match !== "EXACT") return undefined;
    return this.#continuations.get(continuationName(request, at.revision));
  }
}

/**
 * Checks that a list makes progress: a server that repeats a page, or sends only empty ones, would otherwise be
 * listed without end and its objects kept.
 */
class PageOrder {
  #last: string;
  #emptyPages = 0;

  /** All later keys must sort after `last`. */
  constructor(last: string) {
    this.#last = last;
  }

  /** Throws INTERNAL if the server violates the contract. */
  check(items: readonly StoredObject[]): void {
    if (items.length > 0) this.#emptyPages = 0;
    else if (++this.#emptyPages > maxEmptyPages) {
      throw broken(`more than ${maxEmptyPages} pages in a row without an object`);
    }
    for (const { key } of items) {
      if (compareKeys(key, this.#last) <= 0) {
        throw broken(
          `${JSON.stringify(key)} after ${JSON.stringify(this.#last)}, which is not in key order`,
        );
      }
      this.#last = key;
    }
  }
}

const unread = { rest: [], token: "", following: undefined } as const;

/** Objects that a predicate rejected are not kept, so only a request with the same predicate can continue there. */
function continuationName(
  { prefix, startAfter, predicate }: ListRequest,
  revision: number,
): string {
  return JSON.stringify([revision, prefix, startAfter, predicateIdentity(predicate)]);
}
