import type { Shard } from "../../wire/generated/watchfanout/v1/Shard.ts";

/** Hashes from `first` to `last`, both included: of XXH64 with seed 0 of the UTF-8 bytes of a key. */
export interface HashRange {
  readonly first: bigint;
  readonly last: bigint;
}

/** The hashes of part `index`, counted from 0, of `count` parts of about the same size. */
export function shardOf(index: number, count: number): readonly HashRange[] {
  if (!(Number.isInteger(count) && Number.isInteger(index) && index >= 0 && index < count)) {
    throw new RangeError(`There is no part ${index} of ${count}: parts are counted from 0.`);
  }
  const begin = (part: number): bigint => (BigInt(part) * 2n ** 64n) / BigInt(count);
  return [{ first: begin(index), last: begin(index + 1) - 1n }];
}

/** The ranges as a field of a request; null: all keys. */
export function wireShard(ranges: readonly HashRange[] | undefined): Shard | null {
  if (ranges === undefined) return null;
  return { ranges: ranges.map(({ first, last }) => ({ first: `${first}`, last: `${last}` })) };
}
