import { compareKeys } from "../storage/key-order.ts";
import { type StoredObject, weight } from "../storage/object.ts";
import { predicateIdentity } from "../storage/predicate-identity.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../storage/storage.ts";
import type { Page } from "./client.ts";

/** Asks for one page. */
export type AskPage = (request: {
  readonly prefix: string;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly at: RevisionRequirement;
  readonly signal: AbortSignal | undefined;
}) => Promise<Page>;

/** How many listings may go on where they stopped, and how many bytes of theirs are kept for that. */
const maxPlaces = 256;
const maxRestBytes = 16 * 1024 ** 2;

/** The most that a page size on the wire can be. */
const maxPageSize = 2 ** 31 - 1;

/** Where a listing goes on. */
interface Place {
  /** What the first page was asked for with: a token goes with the request that it is from. */
  readonly at: RevisionRequirement;
  /** What has come and was too much for the page before. */
  readonly rest: readonly StoredObject[];
  readonly restBytes: number;
  /** Of what follows on the rest; empty: nothing does. */
  readonly token: string;
  /** How many objects follow on the rest, where the server knows. */
  readonly following: number | undefined;
}

/**
 * Lists over a connection. On the wire a listing is continued by a token, here by the last key: so it is kept
 * which token (and which objects, where a page was cut here) go with which key. Who continues after a key that
 * is not known, or no longer, is answered from the beginning on, of which what comes before is dropped.
 */
export class RemoteLister {
  readonly #ask: AskPage;
  readonly #places = new Map<string, Place>();
  #restBytes = 0;

  constructor(ask: AskPage) {
    this.#ask = ask;
  }

  async list(request: ListRequest): Promise<ListResult> {
    const { prefix, startAfter, limit, maxBytes = 0, at, predicate, signal } = request;
    const known = this.#placeOf(request);
    const skipTo = known === undefined ? startAfter : undefined;
    const first = known?.at ?? at;
    const items: StoredObject[] = [];
    let bytes = 0;
    let revision = at.match === "EXACT" ? at.revision : 0;
    let { rest, token, following }: Omit<Place, "at" | "restBytes"> = known ?? unread;
    let isBegun = known !== undefined;
    for (;;) {
      let taken = 0;
      for (; taken < rest.length; taken++) {
        const object = rest[taken] as StoredObject;
        if (skipTo !== undefined && compareKeys(object.key, skipTo) <= 0) continue;
        if (predicate !== undefined && !predicate(object)) continue;
        const isFull = limit > 0 && items.length >= limit;
        const isTooMuch = maxBytes > 0 && items.length > 0 && bytes + weight(object) > maxBytes;
        if (isFull || isTooMuch) break;
        items.push(object);
        bytes += weight(object);
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
    }
    const isLast = rest.length === 0 && token === "";
    const next = isLast ? undefined : items.at(-1)?.key;
    if (next !== undefined) {
      const restBytes = rest.reduce((sum, object) => sum + weight(object), 0);
      const place = { at: first, rest, restBytes, token, following };
      this.#keep(placeName({ ...request, startAfter: next }, revision), place);
    }
    const remaining =
      following === undefined || predicate !== undefined ? undefined : following + rest.length;
    return { revision, items, next, remaining };
  }

  #placeOf(request: ListRequest): Place | undefined {
    const { startAfter, at } = request;
    if (startAfter === undefined || at.match !== "EXACT") return undefined;
    return this.#places.get(placeName(request, at.revision));
  }

  #keep(name: string, place: Place): void {
    this.#drop(name);
    this.#places.set(name, place);
    this.#restBytes += place.restBytes;
    for (const oldest of this.#places.keys()) {
      if (this.#places.size <= maxPlaces && this.#restBytes <= maxRestBytes) return;
      this.#drop(oldest);
    }
  }

  #drop(name: string): void {
    const place = this.#places.get(name);
    if (place === undefined) return;
    this.#places.delete(name);
    this.#restBytes -= place.restBytes;
  }
}

const unread = { rest: [], token: "", following: undefined } as const;

/** What a predicate has passed over is not kept: only who asks with the same one can go on there. */
function placeName({ prefix, startAfter, predicate }: ListRequest, revision: number): string {
  return JSON.stringify([revision, prefix, startAfter, predicateIdentity(predicate)]);
}
