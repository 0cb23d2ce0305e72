import { invalidRequest } from "../../base/errors.ts";
import type { KeyInterval } from "../../storage/storage.ts";
import { shortName } from "./selection.ts";

/** Hashes from `first` to `last`, both included. */
export interface HashRange {
  readonly first: bigint;
  readonly last: bigint;
}

const largestHash = 2n ** 64n - 1n;
/** Estimated memory of a shard without ranges, and of one range, in bytes. */
const shardBytes = 500;
const rangeBytes = 128;
/** Maximum number of intervals that an index finds one shard by. */
const maxCovering = 4;

/** A part of the keys: those whose hash is in one of its ranges. */
export class Shard {
  /** What indexes find it by: few intervals that have all its hashes, and further ones if it has many ranges. */
  readonly covering: readonly KeyInterval[];
  /** A short name, equal for shards of the same keys, and for no others. */
  readonly canonical: string;
  /** Estimated memory, in bytes. */
  readonly bytes: number;
  /** In order, apart from each other. */
  readonly #intervals: readonly KeyInterval[];

  /** Throws INVALID_REQUEST for no ranges, and for ranges that are empty or overlap. */
  constructor(ranges: readonly HashRange[]) {
    if (ranges.length === 0)
      throw invalidRequest("shard", "shard has no ranges. Give at least one.");
    const intervals: KeyInterval[] = [];
    let open: HashRange | undefined;
    for (const range of ranges.toSorted(byFirst)) {
      if (range.last < range.first) {
        throw invalidRequest(
          "shard",
          `A range of shard goes from ${range.first} to ${range.last}. The last hash must not be below the first.`,
        );
      }
      if (open !== undefined && range.first <= open.last) {
        throw invalidRequest(
          "shard",
          `Two ranges of shard have the hash ${range.first}. Give ranges that do not overlap.`,
        );
      }
      // Adjacent ranges are one.
      if (open !== undefined && range.first === open.last + 1n) {
        open = { first: open.first, last: range.last };
        continue;
      }
      if (open !== undefined) intervals.push(intervalOf(open));
      open = range;
    }
    if (open !== undefined) intervals.push(intervalOf(open));
    this.#intervals = intervals;
    const whole = { from: intervals[0]?.from ?? "", to: intervals.at(-1)?.to };
    this.covering = intervals.length <= maxCovering ? intervals : [whole];
    this.canonical = shortName(...intervals.flatMap(({ from, to = null }) => [from, to]));
    this.bytes = shardBytes + intervals.length * rangeBytes;
  }

  /** Whether the shard has the keys with this hash, a result of `hashOf`. */
  includes(hash: string): boolean {
    let low = 0;
    let high = this.#intervals.length;
    // Searches the first interval that begins after the hash. Hexadecimal digits are in the order of `<`.
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#intervals[middle] as KeyInterval).from <= hash) low = middle + 1;
      else high = middle;
    }
    const interval = this.#intervals[low - 1];
    return interval !== undefined && (interval.to === undefined || hash < interval.to);
  }
}

function byFirst(one: HashRange, other: HashRange): number {
  if (one.first === other.first) return 0;
  return one.first < other.first ? -1 : 1;
}

function intervalOf({ first, last }: HashRange): KeyInterval {
  return { from: textOf(first), to: last === largestHash ? undefined : textOf(last + 1n) };
}

function textOf(hash: bigint): string {
  return hash.toString(16).padStart(16, "0");
}
