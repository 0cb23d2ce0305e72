import { invalidRequest, otherHistory } from "../../base/errors.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import { listedSlab, Slabs } from "../../model/slabs.ts";
import { checkSameHistory } from "../../storage/checks.ts";
import type { ListOrder, RevisionRequirement } from "../../storage/storage.ts";
import type { Duration__Output } from "../../wire/generated/google/protobuf/Duration.ts";
import type { HistoryResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/HistoryResponse.ts";
import type { ListResponse__Output } from "../../wire/generated/watchfanout/v1/ListResponse.ts";
import type { StoredObject__Output as WireObject } from "../../wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchRequest as WireRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import {
  broken,
  decodeDuration,
  decodeEvent,
  decodeObject,
  decodeRevision,
} from "../calls/decode.ts";
import type { PageOptions } from "../calls/options.ts";
import type { AtomicBatch, HistoryPage, ObjectResult, Page } from "./client-calls.ts";

/** Maximum number of consecutive empty pages. A server examines tens of thousands of objects per page. */
const maxEmptyPages = 1_000;

/** Throws INTERNAL if a read that asked for `at` was answered at another revision. */
export function checkReadAt(at: RevisionRequirement | undefined, revision: number): void {
  const isWrong =
    (at?.match === "EXACT" && revision !== at.revision) ||
    (at?.match === "NOT_OLDER_THAN" && revision < at.revision);
  if (isWrong) throw broken(`revision ${revision} for a read ${at.match} ${at.revision}`);
}

/** Throws INTERNAL for another object than the requested one, and for one from after `revision`. */
export function checkObject(
  key: string,
  { key: sent, modRevision }: StoredObject,
  revision: number,
): void {
  if (sent !== key) throw broken(`the key ${JSON.stringify(sent)} for ${JSON.stringify(key)}`);
  if (modRevision > revision) throw broken(`an object of revision ${modRevision} at ${revision}`);
}

/** Decodes the result of a call on the object `key`. Throws INTERNAL for another one. */
export function decodeObjectResult(
  key: string,
  response: {
    readonly revision: string;
    readonly object: WireObject | null;
    readonly history_id: string;
    readonly stale_for?: Duration__Output | null;
  },
): ObjectResult {
  const revision = decodeRevision(response.revision);
  const object = decodeObject(response.object, new Slabs(0));
  checkObject(key, object, revision);
  return {
    revision,
    object,
    historyId: response.history_id,
    ...(response.stale_for ? { staleForMs: decodeDuration(response.stale_for) } : {}),
  };
}

/**
 * Decodes a page of a list. Throws INTERNAL for objects outside of the prefix, and for those from after the page's revision;
 * INVALID_REQUEST for those outside of the range.
 */
export function decodePage(
  response: ListResponse__Output,
  { at, prefix = "", startKey, endKey }: PageOptions,
): Page {
  const revision = decodeRevision(response.revision);
  checkReadAt(at, revision);
  const slabs = new Slabs(listedSlab);
  const items = response.items.map((item) => decodeObject(item, slabs));
  for (const { key, modRevision } of items) {
    checkInRange(key, startKey, endKey);
    if (!key.startsWith(prefix)) {
      throw broken(`the key ${JSON.stringify(key)} for the prefix ${JSON.stringify(prefix)}`);
    }
    if (modRevision > revision) throw broken(`an object of revision ${modRevision} at ${revision}`);
  }
  const remaining = response.remaining_item_count;
  return {
    revision,
    items,
    remainingItemCount: remaining === undefined ? undefined : decodeRevision(remaining),
    nextPageToken: response.next_page_token,
    historyId: response.history_id,
    staleForMs: decodeDuration(response.stale_for),
  };
}

/** Throws INVALID_REQUEST for a key outside of the range: it is ignored by servers of older versions. Empty: no bound. */
function checkInRange(key: string, start = "", end = ""): void {
  const isBelow = start !== "" && compareKeys(key, start) < 0;
  if (!isBelow && (end === "" || compareKeys(key, end) < 0)) return;
  const range = `from ${JSON.stringify(start)} up to ${JSON.stringify(end)}`;
  throw invalidRequest(
    "range",
    `The server sent the key ${JSON.stringify(key)} for the keys ${range}: it is of a version that has no ranges of keys. ` +
      "Use a prefix.",
  );
}

/** Where an object is in a list of this order, apart from its key: the smallest number comes first. */
const places: Readonly<Record<ListOrder, (object: StoredObject) => number>> = {
  KEY_ASCENDING: () => 0,
  KEY_DESCENDING: () => 0,
  MOD_REVISION_ASCENDING: ({ modRevision }) => modRevision,
  MOD_REVISION_DESCENDING: ({ modRevision }) => -modRevision,
  CREATE_REVISION_ASCENDING: ({ createRevision }) => createRevision,
  CREATE_REVISION_DESCENDING: ({ createRevision }) => -createRevision,
};

/** How errors name the pages of a list, and those of a history. */
const ofList = { at: "at", whole: "list", item: "an object" };
const ofHistory = { at: "up to", whole: "history", item: "a change" };

/** Checks that pages are of one state of the store, and that not too many in a row are empty. */
class PagesOfOneState {
  readonly #names: typeof ofList;
  #revision: number | undefined;
  #historyId: string;
  #emptyPages = 0;

  /** `revision` and `historyId`: as far as they are known before the first page. */
  constructor(names: typeof ofList, revision?: number, historyId: string = "") {
    this.#names = names;
    this.#revision = revision;
    this.#historyId = historyId;
  }

  get historyId(): string {
    return this.#historyId;
  }

  /** Throws INTERNAL if the server violates the contract, HISTORY_CHANGED for a page of another history of the store. */
  check({ revision, historyId }: Pick<Page, "revision" | "historyId">, items: number): void {
    const { at, whole, item } = this.#names;
    this.#revision ??= revision;
    if (revision !== this.#revision) {
      throw broken(`a page ${at} revision ${revision} in a ${whole} ${at} ${this.#revision}`);
    }
    checkSameHistory(this.#historyId, historyId);
    if (historyId !== "") this.#historyId = historyId;
    this.#emptyPages = items > 0 ? 0 : this.#emptyPages + 1;
    if (this.#emptyPages <= maxEmptyPages) return;
    throw broken(`more than ${maxEmptyPages} pages in a row without ${item}`);
  }
}

/**
 * Checks that the pages of a list are of one state and make progress: a server that repeats a page, or sends only empty
 * ones, would otherwise be listed without end and its objects kept.
 */
export class JoinedPages {
  readonly #order: ListOrder;
  readonly #pages: PagesOfOneState;
  #last: string;
  /** Of the last object, by `places`. */
  #place = -Infinity;

  /**
   * In key order all keys must sort after `last`. All pages must be at `revision`; undefined: at that of the first page.
   * `historyId`: the history of the pages before; empty if no page had one.
   */
  constructor(
    last: string,
    revision: number | undefined,
    historyId?: string,
    order: ListOrder = "KEY_ASCENDING",
  ) {
    this.#order = order;
    this.#last = last;
    this.#pages = new PagesOfOneState(ofList, revision, historyId);
  }

  /** The id of the history of the pages; empty if no page had one. */
  get historyId(): string {
    return this.#pages.historyId;
  }

  /** Throws INTERNAL if the server violates the contract, HISTORY_CHANGED for a page of another history. */
  check(page: Page): void {
    this.#pages.check(page, page.items.length);
    for (const object of page.items) {
      const { key } = object;
      if (!this.#follows(object)) {
        const order = this.#order === "KEY_ASCENDING" ? "key order" : this.#order;
        throw broken(
          `${JSON.stringify(key)} after ${JSON.stringify(this.#last)}, which is not in ${order}`,
        );
      }
      this.#last = key;
      this.#place = places[this.#order](object);
    }
  }

  #follows(object: StoredObject): boolean {
    const place = places[this.#order](object);
    if (place !== this.#place && this.#order !== "KEY_ASCENDING") return place > this.#place;
    const order = compareKeys(object.key, this.#last);
    return this.#order === "KEY_DESCENDING" ? order < 0 : order > 0;
  }
}

const ends: Readonly<Record<string, HistoryPage["end"]>> = {
  HISTORY_END_CREATION: "CREATION",
  HISTORY_END_COMPACTION: "COMPACTION",
  HISTORY_END_LIMIT: "LIMIT",
};

/**
 * Decodes a page of the history of `key`, which was requested up to `requested`. Throws INTERNAL for changes of another key,
 * out of order, or above that revision, and for a last page without a reason.
 */
export function decodeHistoryPage(
  key: string,
  response: WireResponse,
  requested: number | undefined,
): HistoryPage {
  const { next_page_token: nextPageToken, history_id: historyId } = response;
  const slabs = new Slabs(listedSlab);
  const revision = decodeRevision(response.revision);
  const events = response.events.map((event) => decodeEvent(event, slabs));
  const isLast = nextPageToken === "";
  const end = isLast ? ends[response.end] : undefined;
  if (isLast && end === undefined) throw broken(`a history that ends for ${response.end}`);
  if (requested && requested !== revision) {
    throw broken(`a history up to ${revision} for one up to ${requested}`);
  }
  let last = revision + 1;
  for (const { object } of events) {
    checkObject(key, object, revision);
    if (object.modRevision >= last) {
      throw broken(`a change of revision ${object.modRevision} after that of ${last}`);
    }
    last = object.modRevision;
  }
  const oldestRevision = isLast ? decodeRevision(response.oldest_revision) : undefined;
  return { revision, events, nextPageToken, historyId, end, oldestRevision };
}

/** The same for the pages of a history. */
export class JoinedHistory {
  readonly #pages = new PagesOfOneState(ofHistory);
  /** The revision of the oldest change so far. */
  #last = Infinity;

  /** Throws as `JoinedPages.check`. */
  check(page: HistoryPage): void {
    const { events } = page;
    this.#pages.check(page, events.length);
    const [first] = events;
    if (first === undefined) return;
    if (first.revision >= this.#last) {
      throw broken(`a change of revision ${first.revision} after that of ${this.#last}`);
    }
    this.#last = events.at(-1)?.revision ?? this.#last;
  }
}

/** Yields all pages, as `joined` checks them. Each is requested when the iteration reaches it. */
export async function* allPages<P extends { readonly nextPageToken: string }>(
  joined: { check(page: P): void },
  request: (pageToken: string) => Promise<P>,
): AsyncGenerator<P, void, void> {
  let pageToken = "";
  do {
    const page = await request(pageToken);
    joined.check(page);
    yield page;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

/**
 * What a server may send on a stream, by its request. A faulty server must not move a client back, or make it pass
 * over changes.
 */
export class StreamContract {
  readonly #request: WireRequest;
  /** The last resume point. */
  #revision: number;
  /** Empty if it is not known yet. */
  #historyId: string;
  /** Whether the initial state was requested and has not come. */
  #awaitsInitial: boolean;

  constructor(request: WireRequest) {
    this.#request = request;
    this.#revision = Number(request.after_revision ?? 0);
    this.#historyId = request.history_id ?? "";
    this.#awaitsInitial = request.send_initial_events === true;
  }

  /**
   * Throws HISTORY_CHANGED for another history than the requested one, and INTERNAL for: a resume point below the one
   * before; events that are not between the two, or not in order; other keys; an initial state that was not requested.
   * INVALID_REQUEST for keys outside of the range.
   */
  check({ revision, events, initial, historyId }: AtomicBatch): void {
    const { key, prefix, range } = this.#request;
    const known = this.#historyId;
    if (known !== "" && historyId !== known) throw otherHistory(known, historyId);
    if (initial && !this.#awaitsInitial) throw broken("an initial state that was not requested");
    if (revision < this.#revision) {
      throw broken(`the resume point ${revision} after ${this.#revision}`);
    }
    let last = initial ? 0 : this.#revision + 1;
    for (const { object } of events) {
      const { modRevision } = object;
      if (modRevision < last || modRevision > revision) {
        throw broken(`an event of revision ${modRevision} between ${last} and ${revision}`);
      }
      if (!initial) last = modRevision;
      if (key === undefined ? !object.key.startsWith(prefix ?? "") : object.key !== key) {
        throw broken(`an event of ${JSON.stringify(object.key)}, which was not requested`);
      }
      if (range) checkInRange(object.key, range.start_key, range.end_key);
    }
    this.#revision = revision;
    this.#historyId = historyId;
    if (initial) this.#awaitsInitial = false;
  }
}
