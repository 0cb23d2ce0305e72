import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { WatchBatch } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { Filter } from "../state/filter.ts";

/** Bounds of a chunk. A chunk that has to end where another begins may be twice as large. */
export interface ChunkBounds {
  /** Approximate size of its objects, in estimated bytes: what one write invalidates. */
  readonly bytes: number;
  /** Maximum number of objects examined for it, most of which a selector may exclude. */
  readonly scanned: number;
  /** Maximum number of its objects. Default: unlimited. */
  readonly items?: number;
}

/** Consecutive objects of a list. */
export interface ListChunk {
  /** Always the same array for the same chunk, so that its encoding can be cached by it. */
  readonly items: readonly StoredObject[];
  /** Sum of the objects' estimated bytes. */
  readonly estimatedBytes: number;
  /** Number of objects examined. */
  readonly scanned: number;
  /** The key that the next chunk begins after; undefined if this is the last one. */
  readonly last: string | undefined;
  /** The chunk as a batch of an initial state, cached by its first reader. */
  batch: WatchBatch | undefined;
}

/** Number of objects or requirements examined between two yields: well below a millisecond. */
export const checksPerStep = 4_096;
/** Assumed cost of a predicate without a selection, in requirements. */
const unknownCost = 16;
/** Cost of hashing a key and of searching its shard, in requirements. */
const shardCost = 4;

/**
 * Makes a chunk of those objects that pass the filter. With `end`, it ends at that key, included, unless it reaches
 * twice its bounds before. The objects must not change until it is done.
 */
export function* takeChunk(
  objects: Iterable<StoredObject>,
  filter: Filter,
  bounds: ChunkBounds,
  end: string | undefined,
): TimeSlicedWork<ListChunk> {
  const times = end === undefined ? 1 : 2;
  const maxBytes = times * bounds.bytes;
  const maxScanned = times * bounds.scanned;
  const maxItems = bounds.items ?? Infinity;
  const checksPerObject = 1 + costOf(filter);
  const items: StoredObject[] = [];
  let bytes = 0;
  let scanned = 0;
  let checks = 0;
  let last: string | undefined;
  for (const object of objects) {
    if (end !== undefined && compareKeys(object.key, end) > 0) {
      return { items, estimatedBytes: bytes, scanned, last: end, batch: undefined };
    }
    if (last !== undefined && scanned >= maxScanned) {
      return { items, estimatedBytes: bytes, scanned, last, batch: undefined };
    }
    checks += checksPerObject;
    if (checks > checksPerStep) {
      checks = checksPerObject;
      yield;
    }
    if (filter.leavesOut(object.key)) {
      scanned++;
      continue;
    }
    const isMatching = filter.matches(object);
    // A chunk ends only when there is another matching object for the next: so an index does not change the borders.
    if (isMatching && last !== undefined && (bytes >= maxBytes || items.length >= maxItems)) {
      return { items, estimatedBytes: bytes, scanned, last, batch: undefined };
    }
    scanned++;
    last = object.key;
    if (!isMatching) continue;
    const item = filter.shown(object);
    if (typeof filter.view !== "string") checks += filter.view.costOf(object);
    items.push(item);
    bytes += estimatedBytes(item);
  }
  // Objects added after `end` belong to the next chunk, even if no such object exists at present.
  return { items, estimatedBytes: bytes, scanned, last: end, batch: undefined };
}

/** Counts those of the objects that pass the filter. They must not change until it is done. */
export function* countMatching(
  objects: Iterable<StoredObject>,
  filter: Filter,
): TimeSlicedWork<number> {
  const checksPerObject = 1 + costOf(filter);
  let count = 0;
  let checks = 0;
  for (const object of objects) {
    checks += checksPerObject;
    if (checks > checksPerStep) {
      checks = checksPerObject;
      yield;
    }
    if (!filter.leavesOut(object.key) && filter.matches(object)) count++;
  }
  return count;
}

/** The part of the chunk that follows a key. */
export function restOf({ items, scanned, last }: ListChunk, key: string): ListChunk {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareKeys((items[middle] as StoredObject).key, key) <= 0) low = middle + 1;
    else high = middle;
  }
  const rest = items.slice(low);
  const bytes = rest.reduce((sum, item) => sum + estimatedBytes(item), 0);
  return { items: rest, estimatedBytes: bytes, scanned: scanned - low, last, batch: undefined };
}

/** Cost of checking one object, as a number of requirements. */
export function costOf({ shard, selection, predicate }: Filter): number {
  const contentCost = selection?.cost ?? (predicate === undefined ? 0 : unknownCost);
  return contentCost + (shard === undefined ? 0 : shardCost);
}
