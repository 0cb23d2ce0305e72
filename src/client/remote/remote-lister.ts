import { type Clock, systemClock, type Timer } from "../../base/clock.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { HistoryPage } from "../../storage/history-page.ts";
import type {
  HistoryRequest,
  HistoryResult,
  KeyInterval,
  ListRequest,
  ListResult,
  RevisionRequirement,
} from "../../storage/storage.ts";
import type { ClientCalls, Page } from "../watch/client-calls.ts";
import { JoinedPages } from "../watch/response-checks.ts";

/** Requests one page. */
export type FetchPage = (request: {
  readonly prefix: string;
  readonly startKey: string | undefined;
  readonly endKey: string | undefined;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly at: RevisionRequirement;
  readonly signal: AbortSignal | undefined;
}) => Promise<Page>;

/** Maximum page size on the wire. */
const maxPageSize = 2 ** 31 - 1;

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
    const { prefix, interval, startAfter, limit, maxBytes = 0, at, signal } = request;
    // On the wire an empty end is no bound.
    if (interval?.to === "") return this.list({ ...request, interval: nothing });
    const range = { startKey: interval?.from, endKey: interval?.to };
    const known = this.#continuationOf(request);
    const skipTo = known === undefined ? startAfter : undefined;
    const first = known?.at ?? at;
    const items: StoredObject[] = [];
    let bytes = 0;
    let revision = at.match === "EXACT" ? at.revision : 0;
    let { rest, token, following }: Omit<Continuation, "at" | "historyId"> = known ?? unread;
    let isBegun = known !== undefined;
    const pages = new JoinedPages(
      rest.at(-1)?.key ?? (known === undefined ? "" : (startAfter ?? "")),
      at.match === "EXACT" ? at.revision : undefined,
      known?.historyId,
    );
    for (;;) {
      let taken = 0;
      for (; taken < rest.length; taken++) {
        const object = rest[taken] as StoredObject;
        if (skipTo !== undefined && compareKeys(object.key, skipTo) <= 0) continue;
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
      const all = limit === 0 || skipTo !== undefined;
      const pageSize = all ? 0 : Math.min(limit - items.length, maxPageSize);
      const page = await this.#ask({
        ...{ prefix, ...range, pageSize, pageToken: token },
        ...{ at: first, signal },
      });
      pages.check(page);
      isBegun = true;
      revision = page.revision;
      ({ items: rest, nextPageToken: token, remainingItemCount: following } = page);
    }
    const isLast = rest.length === 0 && token === "";
    const next = isLast ? undefined : items.at(-1)?.key;
    if (next !== undefined) {
      const place = { at: first, historyId: pages.historyId, rest, token, following };
      this.#continuations.keep(continuationName({ ...request, startAfter: next }, revision), place);
    }
    const remaining = following === undefined ? undefined : following + rest.length;
    return { revision, historyId: pages.historyId, items, next, remaining };
  }

  #continuationOf(request: ListRequest): Continuation | undefined {
    const { startAfter, at } = request;
    if (startAfter === undefined || at.match !== "EXACT") return undefined;
    return this.#continuations.get(continuationName(request, at.revision));
  }
}

/** An interval without keys of objects. */
const nothing: KeyInterval = { from: "\0", to: "\0" };

const unread = { rest: [], token: "", following: undefined } as const;

function continuationName({ prefix, interval, startAfter }: ListRequest, revision: number): string {
  return JSON.stringify([revision, prefix, startAfter, interval]);
}

/** Maximum number of continuations, and their maximum size in bytes. */
const maxContinuations = 256;
const maxContinuationBytes = 16 * 1024 ** 2;

/** How long a continuation is kept, in milliseconds: about as long as stores keep revisions. */
const retentionMs = 5 * 60_000;

/** Estimated memory of a continuation besides its strings and objects, in bytes. */
const overheadBytes = 256;

/** Where a list continues. */
interface Continuation {
  /** The revision requirement of the first page, which a page token belongs to. */
  readonly at: RevisionRequirement;
  /** The history of the pages before; empty if no page had one. */
  readonly historyId: string;
  /** Objects that have arrived and exceeded the previous page. */
  readonly rest: readonly StoredObject[];
  /** The page token after `rest`; empty if nothing follows. */
  readonly token: string;
  /** Number of objects after `rest`; undefined if the server does not know it. */
  readonly following: number | undefined;
}

interface CachedContinuation {
  readonly continuation: Continuation;
  readonly bytes: number;
  readonly storedAt: number;
}

/**
 * Continuations by name. Bounded in number, bytes and time: the oldest are dropped first. A list whose continuation
 * was dropped starts again from the beginning.
 */
class ListContinuations {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #continuations = new Map<string, CachedContinuation>();
  #bytes = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  get(name: string): Continuation | undefined {
    return this.#continuations.get(name)?.continuation;
  }

  keep(name: string, continuation: Continuation): void {
    this.#drop(name);
    let bytes =
      overheadBytes + 2 * (name.length + continuation.token.length + continuation.historyId.length);
    for (const object of continuation.rest) bytes += estimatedBytes(object);
    this.#continuations.set(name, { continuation, bytes, storedAt: this.#clock.now() });
    this.#bytes += bytes;
    for (const oldest of this.#continuations.keys()) {
      if (this.#continuations.size <= maxContinuations && this.#bytes <= maxContinuationBytes)
        break;
      this.#drop(oldest);
    }
    this.#setTimer();
  }

  clear(): void {
    this.#continuations.clear();
    this.#bytes = 0;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #drop(name: string): void {
    const kept = this.#continuations.get(name);
    if (kept === undefined) return;
    this.#continuations.delete(name);
    this.#bytes -= kept.bytes;
  }

  /** One timer, for the oldest continuation at the time it is set. */
  #setTimer(): void {
    if (this.#timer !== undefined) return;
    const [oldest] = this.#continuations.values();
    if (oldest === undefined) return;
    const dueMs = Math.max(0, oldest.storedAt + retentionMs - this.#clock.now());
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#expire();
      this.#setTimer();
    }, dueMs);
  }

  #expire(): void {
    const now = this.#clock.now();
    for (const [name, { storedAt }] of this.#continuations) {
      if (now - storedAt < retentionMs) return;
      this.#drop(name);
    }
  }
}

/**
 * Reads a page of a history from another server. There a history is continued by a page token, here by a revision: so the
 * pages of the server are read until one has changes, or is the last.
 */
export async function readHistory(
  client: ClientCalls,
  resource: string,
  request: HistoryRequest,
): Promise<HistoryResult & { readonly historyId: string }> {
  const { key, upTo, limit, keysOnly, signal } = request;
  const view = keysOnly === true ? "KEYS" : "FULL";
  const joined = new HistoryPage(request);
  const options = { revision: upTo, pageSize: limit, view, signal } as const;
  for await (const page of client.history(resource, key, options)) {
    const { revision, historyId, events, nextPageToken, end, oldestRevision = revision } = page;
    for (const event of events) {
      if (!joined.add(event)) return { ...joined.continued(revision, event.revision), historyId };
    }
    if (nextPageToken === "") {
      return { ...joined.finished(revision, oldestRevision, end === "LIMIT"), historyId };
    }
    const last = events.at(-1);
    if (last !== undefined) return { ...joined.continued(revision, last.revision - 1), historyId };
  }
  throw new Error("A history has at least one page.");
}
