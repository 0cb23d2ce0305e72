import { compareKeys } from "../storage/key-order.ts";
import { type StoredObject, weight } from "../storage/object.ts";

/** About how heavy a run is, in bytes: what one write has to be made anew for. */
const runWeight = 64 * 1024;
/** How many objects are looked at for one, most of which a selector may leave out. */
const maxScanned = 10_000;

/** Objects that follow one another in a listing. */
export interface Run {
  /** Always the same array for the same objects, so that whoever encodes them can do it once. */
  readonly items: readonly StoredObject[];
  /** The sum of their weights, in bytes. */
  readonly weight: number;
  /** How many objects were looked at. */
  readonly scanned: number;
  /** The key that the next run begins after; undefined if nothing follows. */
  readonly last: string | undefined;
}

/**
 * A run of these objects, as far as the predicate picks them. `end`: up to and including that key, unless it
 * is too far away.
 */
export function takeRun(
  objects: Iterable<StoredObject>,
  predicate: ((object: StoredObject) => boolean) | undefined,
  end: string | undefined,
): Run {
  const times = end === undefined ? 1 : 2;
  const mostWeight = times * runWeight;
  const mostScanned = times * maxScanned;
  const items: StoredObject[] = [];
  let bytes = 0;
  let scanned = 0;
  let last: string | undefined;
  for (const object of objects) {
    if (end !== undefined && compareKeys(object.key, end) > 0) {
      return { items, weight: bytes, scanned, last: end };
    }
    if (last !== undefined && (bytes >= mostWeight || scanned >= mostScanned)) {
      return { items, weight: bytes, scanned, last };
    }
    scanned++;
    last = object.key;
    if (predicate !== undefined && !predicate(object)) continue;
    items.push(object);
    bytes += weight(object);
  }
  // What may come behind the end is the next one's, also where there is nothing now.
  return { items, weight: bytes, scanned, last: end };
}

/** What of the run follows a key. */
export function restOf({ items, scanned, last }: Run, key: string): Run {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareKeys((items[middle] as StoredObject).key, key) <= 0) low = middle + 1;
    else high = middle;
  }
  const rest = items.slice(low);
  const bytes = rest.reduce((sum, item) => sum + weight(item), 0);
  return { items: rest, weight: bytes, scanned: scanned - low, last };
}
