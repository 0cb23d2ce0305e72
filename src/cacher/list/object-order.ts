import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";

/*
 * Sorts objects in time slices: for pages of ListWatchService, and for ranges of etcd's API.
 */

/** Number of objects looked at, and compared, between two yields. */
export const objectsPerStep = 512;

/** Number of objects that are sorted at once; sorted runs are merged in steps. */
const runLength = 256;

/** Number of bytes whose comparison costs as much as an object. */
const comparedPerObject = 64;

/** Fewer objects than these are not sorted before all of them are known. */
const fewestSorted = 1_024;

/** Which of two objects comes first: a number below 0 if it is the first one. */
export type Compare = (one: StoredObject, other: StoredObject) => number;

export const byKey: Compare = (one, other) => compareKeys(one.key, other.key);
export const byModRevision: Compare = (one, other) => one.modRevision - other.modRevision;
export const byCreateRevision: Compare = (one, other) => one.createRevision - other.createRevision;

/** The opposite order; equal objects stay equal. */
export function descending(compare: Compare): Compare {
  return (one, other) => compare(other, one);
}

/** How a comparison takes long: the number of bytes that it looks at. */
export type ComparedBytes = (one: StoredObject, other: StoredObject) => number;

/**
 * The first objects in an order, of any number of them that are offered in key order. Those that compare as equal stay in
 * key order. It holds at most twice as many as it keeps, or 1,024: so the newest ten of a million objects take the memory of
 * a thousand, and one comparison for most of the others.
 */
export class FirstInOrder {
  readonly #compare: Compare;
  readonly #most: number;
  readonly #comparedBytes: ComparedBytes | undefined;
  #objects: StoredObject[] = [];
  /** The last one that is kept: what does not come before it is not kept. Undefined: there is room. */
  #last: StoredObject | undefined;

  /** `most`: how many are kept. `comparedBytes`: default: next to nothing. */
  constructor(compare: Compare, most: number, comparedBytes?: ComparedBytes) {
    this.#compare = compare;
    this.#most = most;
    this.#comparedBytes = comparedBytes;
  }

  /** Number of objects that it holds. */
  get size(): number {
    return this.#objects.length;
  }

  /** Whether `trim` has to be called before the next object is offered. */
  get isFull(): boolean {
    return this.#objects.length >= Math.max(fewestSorted, 2 * this.#most);
  }

  offer(object: StoredObject): void {
    const last = this.#last;
    // To compare is cheap only if it looks at next to nothing.
    if (last !== undefined && this.#comparedBytes === undefined && this.#compare(object, last) >= 0)
      return;
    this.#objects.push(object);
  }

  /** Drops what is not kept. */
  *trim(): TimeSlicedWork<void> {
    this.#objects = yield* sorted(this.#objects, this.#compare, this.#comparedBytes);
    if (this.#objects.length < this.#most) return;
    this.#objects.length = this.#most;
    this.#last = this.#objects.at(-1);
  }

  /** Returns the objects in their order. Nothing may be offered afterwards. */
  *finish(): TimeSlicedWork<StoredObject[]> {
    yield* this.trim();
    return this.#objects;
  }
}

/**
 * Sorts in time slices: runs of objects at once, then pairs of runs are merged. With `comparedBytes` each run is one
 * object.
 */
function* sorted(
  objects: StoredObject[],
  compare: Compare,
  comparedBytes: ComparedBytes | undefined,
): TimeSlicedWork<StoredObject[]> {
  const length = comparedBytes === undefined ? runLength : 1;
  let from = objects;
  if (length > 1) {
    from = [];
    for (let start = 0; start < objects.length; start += length) {
      from.push(...objects.slice(start, start + length).sort(compare));
      yield;
    }
  }
  let cost = 0;
  for (let merged = length; merged < objects.length; merged *= 2) {
    const to: StoredObject[] = [];
    for (let start = 0; start < from.length; start += 2 * merged) {
      const middle = Math.min(start + merged, from.length);
      const end = Math.min(middle + merged, from.length);
      for (let left = start, right = middle; left < middle || right < end; ) {
        if (cost >= objectsPerStep) {
          cost = 0;
          yield;
        }
        cost++;
        const one = from[left] as StoredObject;
        const other = from[right] as StoredObject;
        let isLeft = right === end;
        if (left < middle && right < end) {
          isLeft = compare(one, other) <= 0;
          if (comparedBytes !== undefined) cost += comparedBytes(one, other) / comparedPerObject;
        }
        to.push(isLeft ? one : other);
        if (isLeft) left++;
        else right++;
      }
    }
    from = to;
  }
  return from;
}
