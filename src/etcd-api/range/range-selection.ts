import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { CachedState } from "../../cacher/request/request.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import type { RangeRequest, SortTarget } from "./range-request.ts";

/** Maximum number of objects that are sorted for one request; etcd answers if there are more. */
const maxSorted = 100_000;

/** Number of objects looked at, and compared, between two yields. */
const perStep = 2_048;

/** Number of objects that are sorted at once; sorted runs are merged in steps. */
const runLength = 256;

/** The objects of a response. */
export interface SelectedObjects {
  readonly objects: readonly StoredObject[];
  /** Number of keys in the range, whatever else the request asks for. */
  readonly count: number;
  /** Whether there are more objects than the limit. */
  readonly more: boolean;
}

type Compare = (one: StoredObject, other: StoredObject) => number;

/** Selects the objects that etcd would respond with, in its order. Undefined if they are too many to be sorted. */
export function* selectRange(
  state: CachedState,
  request: RangeRequest,
): TimeSlicedWork<SelectedObjects | undefined> {
  const { limit, countOnly, sortOrder, sortTarget } = request;
  if (countOnly) return { objects: [], count: state.count(), more: false };
  const isByKey = sortTarget === "key" && sortOrder !== "descend";
  const isSorted = !isByKey;
  // With no order but a target, etcd sorts what the limit leaves in the order of the keys, and one object more.
  const isCutFirst = isByKey || (sortOrder === "none" && !hasRevisionBounds(request));
  const most = limit > 0 && isCutFirst ? limit + 1 : Infinity;
  let objects: StoredObject[] = [];
  let seen = 0;
  let isWhole = true;
  for (const object of state.objects) {
    if (objects.length === most) {
      isWhole = false;
      break;
    }
    if (++seen % perStep === 0) yield;
    if (isWithinBounds(object, request)) objects.push(object);
    if (isSorted && objects.length > maxSorted) return undefined;
  }
  const count = isWhole ? seen : state.count();
  if (sortTarget !== "key") {
    const ascending = comparisons[sortTarget];
    const isDescending = sortOrder === "descend";
    objects = yield* sorted(objects, isDescending ? (a, b) => ascending(b, a) : ascending);
  } else if (sortOrder === "descend") objects.reverse();
  const more = limit > 0 && objects.length > limit;
  if (more) objects.length = limit;
  return { objects, count, more };
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

/** Sorts in time slices: runs at once, then pairs of runs are merged. */
function* sorted(objects: StoredObject[], compare: Compare): TimeSlicedWork<StoredObject[]> {
  let from: StoredObject[] = [];
  for (let start = 0; start < objects.length; start += runLength) {
    from.push(...objects.slice(start, start + runLength).sort(compare));
    yield;
  }
  let steps = 0;
  for (let length = runLength; length < objects.length; length *= 2) {
    const to: StoredObject[] = [];
    for (let start = 0; start < from.length; start += 2 * length) {
      const middle = Math.min(start + length, from.length);
      const end = Math.min(middle + length, from.length);
      for (let left = start, right = middle; left < middle || right < end; ) {
        if (++steps % perStep === 0) yield;
        const isLeft =
          right === end ||
          (left < middle && compare(from[left] as StoredObject, from[right] as StoredObject) <= 0);
        to.push(from[isLeft ? left++ : right++] as StoredObject);
      }
    }
    from = to;
  }
  return from;
}
