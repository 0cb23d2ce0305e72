import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { ListOrder, ListResult } from "../../storage/storage.ts";
import type { CacheListRequest } from "../request/request.ts";
import type { Filter } from "../state/filter.ts";
import type { SortedPart } from "../state/historical-snapshots.ts";
import { checksPerStep, costOf } from "./list-chunk.ts";
import {
  byCreateRevision,
  byKey,
  byModRevision,
  type Compare,
  descending,
  FirstInOrder,
} from "./object-order.ts";
import { PageBuilder } from "./page-builder.ts";

/** Maximum number of objects of a page, whatever its request allows. */
const maxPageObjects = 100_000;
/** Estimated bytes of the smallest object: one with a key of one character. */
const smallestBytes = 65;
/** Cost of putting an object on the page, in requirements. */
const itemCost = 8;

const comparisons: Readonly<Record<ListOrder, Compare>> = {
  KEY_ASCENDING: byKey,
  KEY_DESCENDING: descending(byKey),
  MOD_REVISION_ASCENDING: byModRevision,
  MOD_REVISION_DESCENDING: descending(byModRevision),
  CREATE_REVISION_ASCENDING: byCreateRevision,
  CREATE_REVISION_DESCENDING: descending(byCreateRevision),
};

/** Whether a list is in key order, which needs no page to be sorted. */
export function isInKeyOrder({ order = "KEY_ASCENDING" }: CacheListRequest): boolean {
  return order === "KEY_ASCENDING";
}

/**
 * One page of a list in another order than that of the keys: the objects that come first after the page before, of all objects
 * that are added. It looks at all of them, and holds about as many as it has; or continues with what was sorted for a page
 * before.
 */
export class OrderedPage {
  /** Number of objects that were added, and their estimated bytes. */
  examined = 0;
  examinedBytes = 0;
  readonly #request: CacheListRequest;
  readonly #filter: Filter;
  readonly #compare: Compare;
  readonly #after: StoredObject | undefined;
  /** Maximum number of objects of the page. */
  readonly #most: number;
  readonly #maxAhead: number;
  readonly #first: FirstInOrder;
  /** Number of objects that follow the page before. */
  #following = 0;
  /** Number of objects of the page, once it is made. */
  #size = 0;
  /** What was sorted for the pages behind this one, with its last object before them. Empty before that. */
  ahead: SortedPart = { objects: [], following: 0 };

  /**
   * `after`: the last object of the page before; undefined: this is the first one. `ahead`: how many objects are sorted for
   * this page and those that follow it, if there are so many, and at most how many are kept for the latter.
   */
  constructor(
    request: CacheListRequest,
    filter: Filter,
    after: StoredObject | undefined,
    ahead: number = 0,
  ) {
    const { order = "KEY_ASCENDING", limit, maxBytes = 0 } = request;
    this.#request = request;
    this.#filter = filter;
    this.#compare = comparisons[order];
    this.#after = after;
    const byBytes = maxBytes === 0 ? Infinity : Math.ceil(maxBytes / smallestBytes);
    this.#most = Math.min(limit === 0 ? Infinity : limit, byBytes, maxPageObjects);
    this.#maxAhead = ahead;
    this.#first = new FirstInOrder(this.#compare, Math.max(this.#most, ahead));
  }

  /** Takes objects in key order, all of which have keys above those before. */
  *add(objects: Iterable<StoredObject>): TimeSlicedWork<void> {
    const first = this.#first;
    const filter = this.#filter;
    // One for its revision.
    const checksPerObject = 2 + costOf(filter);
    let checks = 0;
    for (const object of objects) {
      checks += checksPerObject;
      if (checks > checksPerStep) {
        checks = checksPerObject;
        yield;
      }
      this.examined++;
      this.examinedBytes += estimatedBytes(object);
      if (filter.leavesOut(object.key) || !filter.matches(object) || !this.#follows(object))
        continue;
      this.#following++;
      first.offer(object);
      if (first.isFull) yield* first.trim();
    }
  }

  /** Makes the page of what was added. */
  *finish(revision: number, historyId: string | undefined): TimeSlicedWork<ListResult> {
    const objects = yield* this.#first.finish();
    const sorted = { objects, following: this.#following - objects.length };
    const page = yield* this.#page(0, sorted, revision, historyId);
    // A page without a limit has sorted as many as the smallest objects that fit, which is a multiple of what it has. None
    // before its last one is asked for again.
    const from = Math.max(0, this.#size - 1);
    const ahead = objects.slice(from, from + this.#maxAhead);
    this.ahead = { objects: ahead, following: this.#following - from - ahead.length };
    return page as ListResult;
  }

  /**
   * Makes the page of what was sorted for one before. Undefined: that does not have the last object of the page before, or too
   * few after it; or this is the first page.
   */
  *continue(part: SortedPart, revision: number): TimeSlicedWork<ListResult | undefined> {
    if (this.#after === undefined) return undefined;
    const next = indexOf(part.objects, (object) => this.#follows(object));
    if (part.objects[next - 1]?.key !== this.#after.key) return undefined;
    return yield* this.#page(next, part, revision, undefined);
  }

  *#page(
    from: number,
    { objects, following }: SortedPart,
    revision: number,
    historyId: string | undefined,
  ): TimeSlicedWork<ListResult | undefined> {
    const { maxBytes = 0 } = this.#request;
    const { view } = this.#filter;
    const items: StoredObject[] = [];
    let bytes = 0;
    let checks = 0;
    // What is shown of an object may be a copy of it, and most of the objects may not fit.
    const isFull = (): boolean => items.length >= this.#most || (maxBytes > 0 && bytes > maxBytes);
    for (let i = from; i < objects.length && !isFull(); i++) {
      const object = objects[i] as StoredObject;
      checks += typeof view === "string" ? itemCost : itemCost + view.costOf(object);
      if (checks > checksPerStep) {
        checks = 0;
        yield;
      }
      const item = this.#filter.shown(object);
      items.push(item);
      bytes += estimatedBytes(item);
    }
    if (following > 0 && !isFull()) return undefined;
    const left = objects.length - from + following;
    const page = new PageBuilder(this.#request);
    const last = items.length < left ? items.at(-1)?.key : undefined;
    page.add({ items, estimatedBytes: bytes, scanned: this.examined, last, batch: undefined });
    this.#size = page.size;
    return page.finish(revision, left - page.size, historyId);
  }

  #follows(object: StoredObject): boolean {
    const after = this.#after;
    if (after === undefined) return true;
    const order = this.#compare(object, after);
    return order > 0 || (order === 0 && compareKeys(object.key, after.key) > 0);
  }
}

/** The index of the first object that `isAfter` is true of, as of all behind it. */
function indexOf(
  objects: readonly StoredObject[],
  isAfter: (object: StoredObject) => boolean,
): number {
  let low = 0;
  let high = objects.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isAfter(objects[middle] as StoredObject)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Whether a list can have an object with this key: a client can make any page token, and must learn nothing of other keys. */
export function canHave(filter: Filter, key: string): boolean {
  return filter.includes(key) && !filter.leavesOut(key);
}

/** Refuses a page after an object that the list does not have. */
export function notInList(key: string): WatchFanoutError {
  return invalidRequest(
    "page_token",
    `The list has no object ${JSON.stringify(key)} at this revision that a page could follow. Begin with the first page.`,
  );
}
