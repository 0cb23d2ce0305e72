import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { compareKeys } from "../model/key-order.ts";

type Entry<T> = readonly [key: string, value: T];

/** Number of entries that are sorted or merged between two yields. */
const entriesPerStep = 256;

/** Sorts by the keys, in time slices: a sort of many keys in one step takes seconds. Uses `entries` up. */
export function* inKeyOrder<T>(entries: Entry<T>[]): TimeSlicedWork<readonly Entry<T>[]> {
  const { length } = entries;
  let sorted: Entry<T>[] = [];
  for (let at = 0; at < length; at += entriesPerStep) {
    const step = entries.slice(at, at + entriesPerStep);
    for (const entry of step.sort(([one], [other]) => compareKeys(one, other))) sorted.push(entry);
    yield;
  }
  let spare = entries;
  for (let size = entriesPerStep; size < length; size *= 2) {
    for (let at = 0; at < length; at += 2 * size) yield* merge(sorted, spare, at, size);
    [sorted, spare] = [spare, sorted];
  }
  return sorted;
}

/** Merges two parts of `size` that follow on each other from `start` on, of which the last may be shorter, or missing. */
function* merge<T>(
  from: readonly Entry<T>[],
  into: Entry<T>[],
  start: number,
  size: number,
): TimeSlicedWork<void> {
  const middle = Math.min(start + size, from.length);
  const end = Math.min(middle + size, from.length);
  let [one, other] = [start, middle];
  for (let at = start; at < end; at++) {
    const [first, second] = [from[one], from[other]];
    const isFirst =
      one < middle && (other === end || compareKeys(first?.[0] ?? "", second?.[0] ?? "") <= 0);
    into[at] = (isFirst ? from[one++] : from[other++]) as Entry<T>;
    if (at % entriesPerStep === 0) yield;
  }
}
