import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import {
  byCreateRevision,
  byKey,
  byModRevision,
  type Compare,
  descending,
  FirstInOrder,
  objectsPerStep,
} from "../../cacher/list/object-order.ts";
import type { CachedState } from "../../cacher/request/request.ts";
import type { RangeRequest, SortTarget } from "../../etcd/wire/range-request.ts";
import type { StoredObject } from "../../model/object.ts";

/** Maximum number of objects that are collected for one request; etcd answers if there are more. */
const maxCollected = 100_000;

/** Memory of a collected object, in bytes: its place in the list. */
const bytesPerCollected = 8;

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
  const { limit } = request;
  if (isInKeyOrder(request)) return yield* selectFirst(state, state.objects, limit, sizeOf);
  const isReversed = request.sortTarget === "key" && !hasRevisionBounds(request);
  if (isReversed) return yield* selectFirst(state, state.reversed, limit, sizeOf);
  const collected = yield* collect(state, request);
  if (collected === undefined) return undefined;
  const { objects, count, more } = collected;
  const { length } = objects;
  let [fieldBytes, largestField] = [0, 0];
  for (let i = 0; i < length; i++) {
    if (i % objectsPerStep === objectsPerStep - 1) yield;
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

/** The first of the objects, which are those of the state in the order of the response. `limit` 0: all. */
function* selectFirst(
  state: CachedState,
  objects: Iterable<StoredObject>,
  limit: number,
  sizeOf: (object: StoredObject) => number,
): TimeSlicedWork<SelectedObjects> {
  let [length, fieldBytes, largestField, more] = [0, 0, 0, false];
  for (const object of objects) {
    if (limit > 0 && length === limit) {
      more = true;
      break;
    }
    if (++length % objectsPerStep === 0) yield;
    const size = sizeOf(object);
    fieldBytes += size;
    if (size > largestField) largestField = size;
  }
  const count = more ? yield* state.count() : length;
  return { objects, length, fieldBytes, largestField, listBytes: 0, count, more };
}

/** Those objects of the response whose order is not that of the keys, or whose revisions have bounds. */
interface Collected {
  readonly objects: StoredObject[];
  /** Number of all objects in the range. */
  readonly count: number;
  /** Whether there are more objects than the limit. */
  readonly more: boolean;
}

/** Undefined if too many objects would have to be held before the first of the response is known. */
function* collect(
  state: CachedState,
  request: RangeRequest,
): TimeSlicedWork<Collected | undefined> {
  const { limit, sortOrder, sortTarget } = request;
  const isByKey = sortTarget === "key" && sortOrder !== "descend";
  // With no order but a target, etcd sorts what the limit leaves in the order of the keys, and one object more.
  const isCutFirst = isByKey || (sortOrder === "none" && !hasRevisionBounds(request));
  const most = limit > 0 ? limit : Infinity;
  const first = firstInOrder(request, most);
  let [seen, found, count] = [0, 0, -1];
  for (const object of state.objects) {
    if (isCutFirst && found > most) {
      count = yield* state.count();
      break;
    }
    if (++seen % objectsPerStep === 0) yield;
    if (!isWithinBounds(object, request)) continue;
    found++;
    first.offer(object);
    if (first.isFull) yield* first.trim();
    if (first.size > maxCollected) return undefined;
  }
  const objects = yield* first.finish();
  return { objects, count: count < 0 ? seen : count, more: found > most };
}

/** Collects the first objects in the order of the response. */
function firstInOrder({ sortOrder, sortTarget }: RangeRequest, most: number): FirstInOrder {
  const ascending = comparisons[sortTarget];
  const compare = sortOrder === "descend" ? descending(ascending) : ascending;
  // Values may be large, and equal in most of their bytes.
  return new FirstInOrder(compare, most, sortTarget === "value" ? comparedValueBytes : undefined);
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
  key: byKey,
  version: (one, other) => one.version - other.version,
  create: byCreateRevision,
  mod: byModRevision,
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
