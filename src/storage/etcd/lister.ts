import { isEndless, type KeyRange, rangeAfter } from "../../etcd/client/key-range.ts";
import type { DecodedKeyValue, DecodedKeyValues } from "../../etcd/wire/key-value.ts";
import type { DecodedRange } from "../../etcd/wire/range-response.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import { scopeOfList } from "../key-scopes.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../storage.ts";
import { storedObject, valuelessObject } from "./objects/decode.ts";
import type { ResourceKeys } from "./objects/resource-keys.ts";
import type { RangeReader, RangeResult } from "./range-reader.ts";

/**
 * Target size of the keys and values of one etcd response, in bytes. For each response etcd counts all remaining keys
 * of the range, so the cost of a list is quadratic in its number of responses.
 */
const responseBytes = 8 * 1024 * 1024;

/** Maximum size of slabs of listed objects, in bytes. */
const largestSlab = 64 * 1024;

/** Maximum number of keys in one etcd response. */
const maxResponseKeys = 50_000;

/**
 * Number of keys to request while their size is unknown. etcd bounds a response by its number of keys alone, and each
 * value may have 1.5 MiB.
 */
const firstResponseKeys = 64;

/** Maximum growth of the number of keys from one request to the next, as the next ones may have any size. */
const growth = 8;

/** What a request returns for each key: key and value, or the key alone. */
type Unit = "whole" | "key";

interface ResponseSize {
  readonly keys: number;
  /** Average size of a key and its value, or of a key, in bytes. */
  readonly averageBytes: number;
}

const unknown: ResponseSize = { keys: 0, averageBytes: 1 };

/**
 * Reads one page of the resource in one or more etcd requests, all at one revision. Responses have about 8 MiB once the
 * size of objects is known: the first list measures it with few objects, later lists know it.
 */
export class Lister {
  readonly #reader: Pick<RangeReader, "read">;
  readonly #keys: ResourceKeys;
  /** Sizes in the last responses, with values and without, which decide how many keys to request. */
  readonly #last: Record<Unit, ResponseSize> = { whole: unknown, key: unknown };

  constructor(reader: Pick<RangeReader, "read">, keys: ResourceKeys) {
    this.#reader = reader;
    this.#keys = keys;
  }

  async list(request: ListRequest): Promise<ListResult> {
    const { startAfter } = request;
    const range = this.#keys.rangeOfList(scopeOfList(request));
    const page = new Page(request);
    const slabs = new Slabs(largestSlab);
    const whole =
      range === undefined || startAfter === undefined
        ? range
        : rangeAfter(range, this.#keys.absolute(startAfter));
    if (whole === undefined) return this.#empty(request);
    const parts = new RangeParts(whole);
    let reading = this.#read(page, parts, request.at);
    for (;;) {
      const { revision, response } = await reading;
      const { kvs } = response;
      this.#learn(page, response);
      const more = parts.advance(response, this.#keysToRequest(page));
      const at = { match: "EXACT", revision } as const;
      // etcd reads the next part while this one is processed.
      const next = more && page.isWhole ? this.#read(page, parts, at) : undefined;
      next?.catch(ignore);
      const { length } = kvs;
      const taken = this.#fill(page, kvs, slabs);
      kvs.release?.();
      if (taken < length || (page.isFull && more)) return unfinished(page, revision);
      if (!more) return finished(page, revision);
      reading = next ?? this.#read(page, parts, at);
    }
  }

  #read(page: Page, { part }: RangeParts, at: RevisionRequirement): Promise<RangeResult> {
    const limit = this.#keysToRequest(page);
    const read = { ...part, limit, keys_only: page.unit === "key" };
    return this.#reader.read(read, at, page.signal);
  }

  /** The range is empty, so only the revision is read. */
  async #empty(request: ListRequest): Promise<ListResult> {
    const { key } = this.#keys.prefixRange("");
    const read = { key, count_only: true };
    const { revision } = await this.#reader.read(read, request.at, request.signal);
    return { revision, items: [], next: undefined, remaining: 0 };
  }

  /** Adds the objects that fit to the page, and returns the number of keys that it has processed. */
  #fill(page: Page, kvs: DecodedKeyValues, slabs: Slabs): number {
    const { prefixBytes } = this.#keys;
    let taken = 0;
    while (taken < kvs.length && !page.isFull) {
      const kv = kvs.at(taken) as DecodedKeyValue;
      const key = this.#keys.relative(kv);
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

  #keysToRequest(page: Page): number {
    const { keys, averageBytes } = this.#last[page.unit];
    const bytes = Math.min(responseBytes, page.roomBytes);
    const byBytes = Math.ceil(bytes / averageBytes) + 1;
    const byGrowth = Math.max(firstResponseKeys, keys * growth);
    return Math.max(1, Math.min(byBytes, byGrowth, page.roomCount, maxResponseKeys));
  }

  /** Learns the size of keys. A response that ended with its part may have too few to reduce the next one. */
  #learn(page: Page, { kvs, more }: DecodedRange): void {
    if (kvs.length === 0) return;
    let bytes = 0;
    for (let i = 0; i < kvs.length; i++) {
      const kv = kvs.at(i) as DecodedKeyValue;
      bytes += kv.keyEnd - kv.keyStart + kv.valueEnd - kv.valueStart;
    }
    const averageBytes = Math.max(1, bytes / kvs.length);
    const last = this.#last[page.unit];
    this.#last[page.unit] =
      more || kvs.length >= last.keys
        ? { keys: kvs.length, averageBytes }
        : { keys: last.keys, averageBytes: Math.max(averageBytes, last.averageBytes) };
  }
}

/** Awaited later, a rejection must not count as unhandled until then. */
const ignore = (): void => {};

function finished(page: Page, revision: number): ListResult {
  return { revision, items: page.items, next: undefined, remaining: 0 };
}

/**
 * A page that is full, so that it has at least one object. The number of remaining objects is unknown: etcd counts keys
 * that are no objects of the resource, too, and these keys have not been read.
 */
function unfinished(page: Page, revision: number): ListResult {
  return { revision, items: page.items, next: page.items.at(-1)?.key, remaining: undefined };
}

/** The page while it is filled. */
class Page {
  readonly items: StoredObject[] = [];
  readonly #request: ListRequest;
  #bytes = 0;

  constructor(request: ListRequest) {
    this.#request = request;
  }

  get unit(): Unit {
    return this.#request.keysOnly === true ? "key" : "whole";
  }

  get signal(): AbortSignal | undefined {
    return this.#request.signal;
  }

  /** Whether the page has no bound, so that it takes every object. */
  get isWhole(): boolean {
    const { limit, maxBytes = 0 } = this.#request;
    return limit === 0 && maxBytes === 0;
  }

  get isFull(): boolean {
    const { limit } = this.#request;
    return limit > 0 && this.items.length >= limit;
  }

  /** Maximum number of objects that still fit, as far as that bounds the number of keys to request. */
  get roomCount(): number {
    const { limit } = this.#request;
    return limit === 0 ? Infinity : limit - this.items.length;
  }

  get roomBytes(): number {
    const { maxBytes = 0 } = this.#request;
    return maxBytes === 0 ? Infinity : Math.max(0, maxBytes - this.#bytes);
  }

  /** Adds the object. Returns false if there is no room. */
  offer(object: StoredObject): boolean {
    const { maxBytes = 0 } = this.#request;
    const bytes = this.#bytes + estimatedBytes(object);
    if (maxBytes > 0 && bytes > maxBytes && this.items.length > 0) return false;
    this.#bytes = bytes;
    this.items.push(object);
    return true;
  }
}

type Range = Required<KeyRange>;

/** Number of bytes that make a key's position in the range, after those that all keys of the range have in common. */
const positionBytes = 32;

/**
 * Number of remaining keys up to which all of them are requested: to count them costs etcd 10 ms, and each wrong guess a
 * request.
 */
const fewKeys = 100_000;

/** How many times as many keys a part should have as are requested of it. */
const surplus = 2n;

/**
 * A part after one with fewer keys than were requested is longer by this many bits, the one after that by twice as many,
 * and so on: groups of keys may be far apart.
 */
const lengtheningBits = 8n;

/**
 * The parts of a range that are requested one after the other. For each response etcd counts all keys of the requested
 * range, at 0.1 us each: if the rest of a million objects was requested 35 times, it would spend as much on counting as
 * on reading. So the end of a part with about as many keys as one response is guessed from the keys so far, as if keys
 * were evenly spread numbers.
 *
 * A wrong guess changes the cost only: too long a part costs etcd at most what the whole range costs it, too short a
 * part one more request, and at most six in a row.
 */
export class RangeParts {
  readonly #end: Buffer;
  /** The first bytes that all keys of the range have in common. */
  readonly #common: Buffer;
  readonly #endPosition: bigint;
  #part: Range;
  /** Length of the last part with a guessed end, as a difference of positions. */
  #length = 0n;
  #lengtheningBits = lengtheningBits;
  /** Number of keys that no response had yet; undefined before the first response. */
  #remaining: number | undefined;

  constructor(range: Range) {
    const { key, range_end } = range;
    this.#part = range;
    this.#end = range_end;
    const hasEnd = !isEndless(range_end);
    this.#common = hasEnd ? commonStart(key, range_end) : none;
    this.#endPosition = hasEnd ? this.#positionOf(range_end) : 1n << BigInt(8 * positionBytes);
  }

  /** The part to request. */
  get part(): Range {
    return this.#part;
  }

  /**
   * Moves on to the part after a response about `part`, of which `keys` keys will be requested. Returns false if
   * nothing is left. All responses have to be of one revision.
   */
  advance({ kvs, more, count }: DecodedRange, keys: number): boolean {
    const { range_end } = this.#part;
    const first = kvs.at(0)?.key;
    const last = kvs.at(-1)?.key;
    const remaining = (this.#remaining ?? count) - kvs.length;
    this.#remaining = remaining;
    if (!more || first === undefined || last === undefined) {
      if (range_end.equals(this.#end) || remaining <= 0) return false;
      this.#begin(range_end, remaining, this.#length << this.#lengtheningBits);
      this.#lengtheningBits *= 2n;
      return true;
    }
    const rest = rangeAfter({ key: this.#part.key, range_end: this.#end }, last);
    if (rest === undefined) return false;
    const distance = this.#positionOf(last) - this.#positionOf(first);
    this.#lengtheningBits = lengtheningBits;
    this.#begin(rest.key, remaining, (distance * surplus * BigInt(keys)) / BigInt(kvs.length));
    return true;
  }

  #begin(key: Buffer, remaining: number, length: bigint): void {
    const end = this.#positionOf(key) + length;
    const isBounded = remaining > fewKeys && length > 0n && end < this.#endPosition;
    this.#length = length;
    this.#part = { key, range_end: isBounded ? this.#keyAt(end) : this.#end };
  }

  #positionOf(key: Buffer): bigint {
    const position = Buffer.alloc(positionBytes);
    key.copy(position, 0, this.#common.length);
    return BigInt(`0x${position.toString("hex")}`);
  }

  #keyAt(position: bigint): Buffer {
    const bytes = position.toString(16).padStart(2 * positionBytes, "0");
    return Buffer.concat([this.#common, Buffer.from(bytes, "hex")]);
  }
}

const none = Buffer.alloc(0);

/** The first bytes that all keys from `first` up to `end` have in common. */
function commonStart(first: Buffer, end: Buffer): Buffer {
  const most = Math.min(first.length, end.length);
  let length = 0;
  while (length < most && first[length] === end[length]) length++;
  return first.subarray(0, length);
}
