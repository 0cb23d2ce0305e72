import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { CachedState } from "../../cacher/request/request.ts";
import type { RangeRequest, SortTarget } from "../../etcd/wire/range-request.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";

/** Maximum number of objects that are collected for one request; etcd answers if there are more. */
const maxCollected = 100_000;

/** Memory of a collected object, in bytes: its place in the list. */
const bytesPerCollected = 8;

/** Number of objects looked at, and compared, between two yields. */
const perStep = 512;

/** Number of objects that are sorted at once; sorted runs are merged in steps. */
const runLength = 256;

/** Number of bytes whose comparison costs as much as an object. */
const comparedPerObject = 64;

/** The objects of a response. */
export interface SelectedObjects {
  /** In the order of the response, which has the first `length` of them. It can be iterated any number of times. */
  readonly objects: Iterable<StoredObject>;
  readonly length: number;
  /** Size of the fields of these objects, in bytes. */
  readonly fieldBytes: number;
  /** Size of the largest of these fields, in bytes. */
  readonly largestField: number;
  /** Memory of their list, in bytes; 0 if they are read from the state instead. */
  readonly listBytes: number;
  /** Number of keys in the range, whatever else the request asks for. */
  readonly count: number;
  /** Whether there are more objects than the limit. */
  readonly more: boolean;
}

type Compare = (one: StoredObject, other: StoredObject) => number;

/**
 * Selects the objects that etcd would respond with, in its order. Undefined if too many of them would have to be collected.
 * `sizeOf`: the size of an object's field.
 */
export function* selectRange(
  state: CachedState,
  request: RangeRequest,
  sizeOf: (object: StoredObject) => number,
): TimeSlicedWork<SelectedObjects | undefined> {
  if (request.countOnly) {
    const none = { objects: [], length: 0, fieldBytes: 0, largestField: 0, listBytes: 0 };
    return { ...none, more: false, count: yield* state.count() };
  }
  if (isInKeyOrder(request)) return yield* selectFirst(state, request.limit, sizeOf);
  const collected = yield* collect(state, request);
  if (collected === undefined) return undefined;
  const { limit } = request;
  const { count } = collected;
  const objects = yield* inOrder(collected.objects, request);
  const more = limit > 0 && objects.length > limit;
  if (more) objects.length = limit;
  const { length } = objects;
  let [fieldBytes, largestField] = [0, 0];
  for (let i = 0; i < length; i++) {
    if (i % perStep === perStep - 1) yield;
    const size = sizeOf(objects[i] as StoredObject);
    fieldBytes += size;
    if (size > largestField) largestField = size;
  }
  const listBytes = length * bytesPerCollected;
  return { objects, length, fieldBytes, largestField, listBytes, count, more };
}

/** Whether the objects are all of the range, in the order of their keys. */
export function isInKeyOrder(request: RangeRequest): boolean {
  const { sortOrder, sortTarget } = request;
  return sortTarget === "key" && sortOrder !== "descend" && !hasRevisionBounds(request);
}

/** The first objects of the state, in the order of their keys. `limit` 0: all. */
function* selectFirst(
  state: CachedState,
  limit: number,
  sizeOf: (object: StoredObject) => number,
): TimeSlicedWork<SelectedObjects> {
  const { objects } = state;
  let [length, fieldBytes, largestField, more] = [0, 0, 0, false];
  for (const object of objects) {
    if (limit > 0 && length === limit) {
      more = true;
      break;
    }
    if (++length % perStep === 0) yield;
    const size = sizeOf(object);
    fieldBytes += size;
    if (size > largestField) largestField = size;
  }
  const count = more ? yield* state.count() : length;
  return { objects, length, fieldBytes, largestField, listBytes: 0, count, more };
}

/** The objects that have to be known before the first of the response is, and the number of all in the range. */
function* collect(
  state: CachedState,
  request: RangeRequest,
): TimeSlicedWork<{ readonly objects: StoredObject[]; readonly count: number } | undefined> {
  const { limit, sortOrder, sortTarget } = request;
  const isByKey = sortTarget === "key" && sortOrder !== "descend";
  // With no order but a target, etcd sorts what the limit leaves in the order of the keys, and one object more.
  const isCutFirst = isByKey || (sortOrder === "none" && !hasRevisionBounds(request));
  const most = limit > 0 && isCutFirst ? limit + 1 : Infinity;
  const objects: StoredObject[] = [];
  let seen = 0;
  for (const object of state.objects) {
    if (objects.length === most) return { objects, count: yield* state.count() };
    if (++seen % perStep === 0) yield;
    if (isWithinBounds(object, request)) objects.push(object);
    if (objects.length > maxCollected) return undefined;
  }
  return { objects, count: seen };
}

/** The same objects in the order of the response. */
function* inOrder(
  objects: StoredObject[],
  { sortOrder, sortTarget }: RangeRequest,
): TimeSlicedWork<StoredObject[]> {
  const isDescending = sortOrder === "descend";
  if (sortTarget === "key") return isDescending ? objects.reverse() : objects;
  const ascending = comparisons[sortTarget];
  const compare: Compare = isDescending ? (one, other) => ascending(other, one) : ascending;
  // Values may be large, and equal in most of their bytes.
  return yield* sortTarget === "value"
    ? sorted(objects, compare, 1, comparedValueBytes)
    : sorted(objects, compare, runLength);
}

/** Whether the request asks for objects with certain revisions only. */
export function hasRevisionBounds(request: RangeRequest): boolean {
  const { minModRevision, maxModRevision, minCreateRevision, maxCreateRevision } = request;
  return minModRevision + maxModRevision + minCreateRevision + maxCreateRevision > 0;
}

function isWithinBounds(
  { modRevision, createRevision }: StoredObject,
  { minModRevision, maxModRevision, minCreateRevision, maxCreateRevision }: RangeRequest,
): boolean {
  return (
    modRevision >= minModRevision &&
    (maxModRevision === 0 || modRevision <= maxModRevision) &&
    createRevision >= minCreateRevision &&
    (maxCreateRevision === 0 || createRevision <= maxCreateRevision)
  );
}

const comparisons: Readonly<Record<SortTarget, Compare>> = {
  key: (one, other) => compareKeys(one.key, other.key),
  version: (one, other) => one.version - other.version,
  create: (one, other) => one.createRevision - other.createRevision,
  mod: (one, other) => one.modRevision - other.modRevision,
  value: (one, other) =>
    Buffer.prototype.compare.call(
      one.content,
      other.content,
      ...([other.valueStart, other.valueEnd, one.valueStart, one.valueEnd] as const),
    ),
};

/** How many bytes of the values are compared at most. */
function comparedValueBytes(one: StoredObject, other: StoredObject): number {
  return Math.min(one.valueEnd - one.valueStart, other.valueEnd - other.valueStart);
}

/**
 * Sorts in time slices: runs of this length at once, then pairs of runs are merged. `comparedBytes`: what a comparison looks
 * at; default: next to nothing.
 */
function* sorted(
  objects: StoredObject[],
  compare: Compare,
  length: number,
  comparedBytes?: (one: StoredObject, other: StoredObject) => number,
): TimeSlicedWork<StoredObject[]> {
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
        if (cost >= perStep) {
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
