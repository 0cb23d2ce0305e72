import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../storage.ts";
import { storedObject, valuelessObject } from "./client/decode.ts";
import { type KeyRange, rangeAfter } from "./client/key-range.ts";
import type { RangeRequest } from "./client/messages.ts";
import type { DecodedKeyValue, DecodedRange } from "./client/responses.ts";

/**
 * Target size of the keys and values of one etcd response, in bytes. For each response etcd counts all remaining keys
 * of the range, so the cost of a list is quadratic in its number of responses.
 */
const answerBytes = 8 * 1024 * 1024;

/** Maximum size of slabs of listed objects, in bytes. */
const largestSlab = 64 * 1024;

/** Maximum number of keys in one etcd response. */
const maxAnswerKeys = 50_000;

/**
 * Number of keys to request while their size is unknown. etcd bounds a response by its number of keys alone, and each
 * value may have 1.5 MiB.
 */
const firstAnswerKeys = 64;

/** Maximum growth of the number of keys from one request to the next, as the next ones may have any size. */
const growth = 8;

/** Maximum number of objects that a page with a predicate reads. Such a page may be short or empty. */
const maxScanned = 50_000;

/** What a request returns for each key: key and value, or the key alone. */
type Unit = "whole" | "key";

interface Answer {
  readonly keys: number;
  /** Average size of a key and its value, or of a key, in bytes. */
  readonly averageBytes: number;
}

const unknown: Answer = { keys: 0, averageBytes: 1 };

/** What a Lister needs from the storage. */
export interface ListSource {
  /** Reads once at the required revision, and returns the revision of the answer. */
  read(
    request: RangeRequest,
    at: RevisionRequirement,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly revision: number; readonly response: DecodedRange }>;
  /** Length of the resource's prefix, in bytes. */
  readonly prefixBytes: number;
  /** Returns the relative key; undefined for a key that is no object of the resource. */
  keyOf(kv: DecodedKeyValue): string | undefined;
}

/**
 * Reads one page of the resource in one or more etcd requests, all at one revision. Responses have about 8 MiB once the
 * size of objects is known: the first list measures it with few objects, later lists know it.
 */
export class Lister {
  readonly #source: ListSource;
  /** Sizes in the last responses, with values and without, which decide how many keys to request. */
  readonly #last: Record<Unit, Answer> = { whole: unknown, key: unknown };

  constructor(source: ListSource) {
    this.#source = source;
  }

  /** `range` is that of the request's prefix, `startAfter` the absolute key to start after. */
  async list(
    request: ListRequest,
    range: Required<KeyRange>,
    startAfter: Buffer | undefined,
  ): Promise<ListResult> {
    const page = new Page(request);
    const slabs = new Slabs(largestSlab);
    let rest = startAfter === undefined ? range : rangeAfter(range, startAfter);
    if (rest === undefined) return this.#empty(request, range);
    let { at } = request;
    let atRevision: number | undefined;
    for (;;) {
      const limit = this.#keysToAskFor(page);
      const { revision, response } = await this.#source.read(
        { ...rest, limit, keys_only: page.unit === "key" },
        at,
        request.signal,
      );
      atRevision ??= revision;
      at = { match: "EXACT", revision: atRevision };
      const { kvs, more } = response;
      this.#learn(page, kvs);
      const taken = this.#fill(page, kvs, slabs);
      if (taken < kvs.length || (page.isFull && more)) {
        return unfinished(page, atRevision);
      }
      const last = kvs.at(-1);
      if (!more || last === undefined) return finished(page, atRevision);
      rest = rangeAfter(rest, last.key);
      if (rest === undefined) return finished(page, atRevision);
    }
  }

  /** The range is empty, so only the revision is read. */
  async #empty(request: ListRequest, { key }: KeyRange): Promise<ListResult> {
    const read = { key, count_only: true };
    const { revision } = await this.#source.read(read, request.at, request.signal);
    return { revision, items: [], next: undefined, remaining: 0 };
  }

  /** Adds the objects that fit to the page, and returns the number of keys that it has processed. */
  #fill(page: Page, kvs: readonly DecodedKeyValue[], slabs: Slabs): number {
    const { prefixBytes } = this.#source;
    let taken = 0;
    for (const kv of kvs) {
      if (page.isFull) break;
      const key = this.#source.keyOf(kv);
      if (key !== undefined) {
        const object =
          page.unit === "key"
            ? valuelessObject(key, kv)
            : storedObject(key, kv, prefixBytes, slabs);
        if (!page.offer(object)) break;
      }
      taken++;
    }
    return taken;
  }

  #keysToAskFor(page: Page): number {
    const { keys, averageBytes } = this.#last[page.unit];
    const bytes = Math.min(answerBytes, page.roomBytes);
    const byBytes = Math.ceil(bytes / averageBytes) + 1;
    const byGrowth = Math.max(firstAnswerKeys, keys * growth);
    return Math.max(1, Math.min(byBytes, byGrowth, page.roomCount, maxAnswerKeys));
  }

  #learn(page: Page, kvs: readonly DecodedKeyValue[]): void {
    if (kvs.length === 0) return;
    let bytes = 0;
    for (const kv of kvs) bytes += kv.keyEnd - kv.keyStart + kv.valueEnd - kv.valueStart;
    const averageBytes = Math.max(1, bytes / kvs.length);
    this.#last[page.unit] = { keys: kvs.length, averageBytes };
  }
}

function finished(page: Page, revision: number): ListResult {
  return { revision, items: page.items, next: undefined, remaining: 0 };
}

/**
 * Whether the number of remaining objects is unknown: etcd counts keys that are no objects of the resource, too, and
 * these keys have not been read.
 */
function unfinished(page: Page, revision: number): ListResult {
  return { revision, items: page.items, next: page.lastKey, remaining: undefined };
}

/** The page while it is filled. */
class Page {
  readonly items: StoredObject[] = [];
  readonly #request: ListRequest;
  #bytes = 0;
  #scanned = 0;
  /** The last processed key, whether or not its object is on the page. */
  lastKey: string | undefined;

  constructor(request: ListRequest) {
    this.#request = request;
    this.lastKey = request.startAfter;
  }

  get isFiltered(): boolean {
    return this.#request.predicate !== undefined;
  }

  get unit(): Unit {
    return this.#request.keysOnly === true ? "key" : "whole";
  }

  get isFull(): boolean {
    const { limit } = this.#request;
    if (this.isFiltered && this.#scanned >= maxScanned) return true;
    return limit > 0 && this.items.length >= limit;
  }

  /** Maximum number of objects that still fit, as far as that bounds the number of keys to request. */
  get roomCount(): number {
    const { limit } = this.#request;
    if (this.isFiltered) return maxScanned - this.#scanned;
    return limit === 0 ? Infinity : limit - this.items.length;
  }

  get roomBytes(): number {
    const { maxBytes = 0 } = this.#request;
    return maxBytes === 0 || this.isFiltered ? Infinity : Math.max(0, maxBytes - this.#bytes);
  }

  /** Adds the object, unless the predicate rejects it. Returns false if there is no room. */
  offer(object: StoredObject): boolean {
    const { predicate, maxBytes = 0 } = this.#request;
    if (predicate === undefined || predicate(object)) {
      const bytes = this.#bytes + estimatedBytes(object);
      if (maxBytes > 0 && bytes > maxBytes && this.items.length > 0) return false;
      this.#bytes = bytes;
      this.items.push(object);
    }
    this.#scanned++;
    this.lastKey = object.key;
    return true;
  }
}
