import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { WatchBatch } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { Filter } from "../state/filter.ts";
import type { OrderedStore } from "../state/ordered-store.ts";

/** How large a chunk becomes. One that has to end where another begins may be twice as large. */
export interface ChunkBounds {
  /** About how heavy it is, in bytes: what one write has to be made anew for. */
  readonly bytes: number;
  /** How many objects are looked at for one, most of which a selector may leave out. */
  readonly scanned: number;
  /** How many objects it has at the most. Default: as many as there are. */
  readonly items?: number;
}

/** Objects that follow one another in a list. */
export interface ListChunk {
  /** Always the same array for the same objects, so that whoever encodes them can do it once. */
  readonly items: readonly StoredObject[];
  /** The sum of their weights, in bytes. */
  readonly estimatedBytes: number;
  /** How many objects were looked at. */
  readonly scanned: number;
  /** The key that the next chunk begins after; undefined if nothing follows. */
  readonly last: string | undefined;
  /** The same as a piece of an initial state, kept here by whoever makes it first. Not part of what it is. */
  batch: WatchBatch | undefined;
}

/** How many objects or requirements are looked at between two yields: well below a millisecond. */
const checksPerStep = 4_096;
/** What a predicate of which nothing is known is taken to cost, in requirements. */
const unknownCost = 16;

/** The objects of the state that are in the filter's scope and follow a key, in order. */
export function objectsOf(
  state: OrderedStore,
  { key, prefix }: Filter,
  startAfter: string | undefined,
): Iterable<StoredObject> {
  if (key === undefined) return state.range(prefix, startAfter);
  const object = state.get(key);
  const isAfter = startAfter === undefined || compareKeys(key, startAfter) > 0;
  return object !== undefined && isAfter ? [object] : [];
}

/**
 * A chunk of these objects, as far as the filter lets them through. `end`: up to and including that key,
 * unless it is too far away. The objects have to stay as they are for as long as it takes.
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
    const isPicked = filter.matches(object);
    // Not before there is another for the next one, wherever that is: an index does not change how chunks are cut.
    if (isPicked && last !== undefined && (bytes >= maxBytes || items.length >= maxItems)) {
      return { items, estimatedBytes: bytes, scanned, last, batch: undefined };
    }
    scanned++;
    last = object.key;
    if (!isPicked) continue;
    items.push(object);
    bytes += estimatedBytes(object);
  }
  // What may come behind the end is the next one's, also where there is nothing now.
  return { items, estimatedBytes: bytes, scanned, last: end, batch: undefined };
}

/** What of the chunk follows a key. */
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

/** How many requirements one object may have to be held against. */
function costOf({ selection, predicate }: Filter): number {
  if (selection !== undefined) return selection.cost;
  return predicate === undefined ? 0 : unknownCost;
}
