import { isEndless, type KeyRange, rangeAfter } from "../../etcd/client/key-range.ts";
import type { DecodedRange } from "../../etcd/wire/range-response.ts";

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
