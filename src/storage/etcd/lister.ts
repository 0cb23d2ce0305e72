import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../storage.ts";
import { storedObject, valuelessObject } from "./client/decode.ts";
import { type KeyRange, rangeAfter } from "./client/key-range.ts";
import type { RangeRequest } from "./client/messages.ts";
import type { DecodedKeyValue, DecodedRange } from "./client/responses.ts";

/**
 * How many bytes of keys and values one answer of etcd is meant to have, about. For each answer etcd walks
 * over all keys of the range that are left, to count them: many small answers would cost it the square of
 * how many there are.
 */
const answerBytes = 8 * 1024 * 1024;

/** How large the slabs of what is listed become, in bytes. */
const largestSlab = 64 * 1024;

/** How many keys one answer of etcd may have. */
const maxAnswerKeys = 50_000;

/**
 * How many keys are asked for where nothing is known of what they hold. etcd bounds an answer by its keys alone, and
 * each may be of 1.5 MiB.
 */
const firstAnswerKeys = 64;

/** How many times as many keys as the last answer had the next one may have: these may be of any size again. */
const growth = 8;

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;

/** What etcd is asked for a number of: keys with their values, or keys alone. */
type Unit = "whole" | "key";

interface Answer {
  readonly keys: number;
  /** Of a key and its value, or of a key. */
  readonly averageBytes: number;
}

const unknown: Answer = { keys: 0, averageBytes: 1 };

/** What a listing needs of the storage. */
export interface ListSource {
  /** Reads once, as new as required, and says at which revision. */
  read(
    request: RangeRequest,
    at: RevisionRequirement,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly revision: number; readonly response: DecodedRange }>;
  /** How long the resource's prefix is, in bytes. */
  readonly prefixBytes: number;
  /** The relative key; undefined if it is not part of the resource. */
  keyOf(kv: DecodedKeyValue): string | undefined;
}

/**
 * One page of the resource, of however many answers of etcd: all at one revision, each of about 8 MiB as soon as it is
 * known of what size the objects are. The first listing finds that out by few objects, and later ones know it.
 */
export class Lister {
  readonly #source: ListSource;
  /** The last answer, of keys and values or of keys alone, by which to ask for the right number. */
  readonly #last: Record<Unit, Answer> = { whole: unknown, key: unknown };

  constructor(source: ListSource) {
    this.#source = source;
  }

  /**
   * `range` is that of the request's prefix, `startAfter` the absolute key to start after.
   */
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

  /** Nothing can be in the range; what is left to find out is the revision. */
  async #empty(request: ListRequest, { key }: KeyRange): Promise<ListResult> {
    const read = { key, count_only: true };
    const { revision } = await this.#source.read(read, request.at, request.signal);
    return { revision, items: [], next: undefined, remaining: 0 };
  }

  /** Puts into the page what fits, and returns how many keys it has dealt with. */
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
 * How many objects follow is not known: what etcd counts may have keys among it that are not part of the
 * resource, and nobody has looked at those.
 */
function unfinished(page: Page, revision: number): ListResult {
  return { revision, items: page.items, next: page.lastKey, remaining: undefined };
}

/** The page as it fills. */
class Page {
  readonly items: StoredObject[] = [];
  readonly #request: ListRequest;
  #bytes = 0;
  #scanned = 0;
  /** The last key that has been dealt with, whether or not its object is on the page. */
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

  /** How many objects there is room for, as far as that limits how many keys to ask for. */
  get roomCount(): number {
    const { limit } = this.#request;
    if (this.isFiltered) return maxScanned - this.#scanned;
    return limit === 0 ? Infinity : limit - this.items.length;
  }

  get roomBytes(): number {
    const { maxBytes = 0 } = this.#request;
    return maxBytes === 0 || this.isFiltered ? Infinity : Math.max(0, maxBytes - this.#bytes);
  }

  /** Takes the object, or leaves it out if the predicate does; returns false if there is no room. */
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
