import type { Clock } from "../../base/clock.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { predicateIdentity } from "../../model/predicate.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../../storage/storage.ts";
import { broken } from "../calls/decode.ts";
import type { Page } from "../watch/client-calls.ts";
import { type Continuation, ListContinuations } from "./list-continuations.ts";

/** Asks for one page. */
export type FetchPage = (request: {
  readonly prefix: string;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly at: RevisionRequirement;
  readonly signal: AbortSignal | undefined;
}) => Promise<Page>;

/** The most that a page size on the wire can be. */
const maxPageSize = 2 ** 31 - 1;

/** How many pages in a row may have no object. An honest server looks at tens of thousands of objects for each. */
const maxEmptyPages = 1_000;

/**
 * Lists over a connection. On the wire a listing is continued by a token, here by the last key: so it is kept
 * which token (and which objects, where a page was cut here) go with which key. Who continues after a key that
 * is not known, or no longer, is answered from the beginning on, of which what comes before is dropped.
 */
export class RemoteLister {
  readonly #ask: FetchPage;
  readonly #continuations: ListContinuations;

  constructor(ask: FetchPage, clock?: Clock) {
    this.#ask = ask;
    this.#continuations = new ListContinuations(clock);
  }

  /** Drops what is kept for listings that go on. */
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
 * Sees to it that a listing gets on: a server that gives the same page for ever, or nothing but empty ones, would
 * otherwise be listed without end, and what it gives kept.
 */
class PageOrder {
  #last: string;
  #emptyPages = 0;

  /** All that comes has to sort after `last`. */
  constructor(last: string) {
    this.#last = last;
  }

  /** Throws INTERNAL of what no watch-fanout sends. */
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

/** What a predicate has passed over is not kept: only who asks with the same one can go on there. */
function continuationName(
  { prefix, startAfter, predicate }: ListRequest,
  revision: number,
): string {
  return JSON.stringify([revision, prefix, startAfter, predicateIdentity(predicate)]);
}
