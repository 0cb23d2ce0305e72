import { DeletedFinalStateUnknown, type Delta, type Keyed } from "./delta.ts";

/**
 * Puts `delta` behind the others of its key. Two deletions in a row are one: the one that knows the final
 * state.
 */
export function joinDelta<T extends Keyed>(deltas: Delta<T>[], delta: Delta<T>): void {
  const newest = deltas.at(-1);
  if (newest?.type !== "Deleted" || delta.type !== "Deleted") deltas.push(delta);
  else if (!(delta.object instanceof DeletedFinalStateUnknown)) deltas[deltas.length - 1] = delta;
}

/**
 * The same history with no more than four deltas, which begins and ends as it did: the first, the last
 * deletion and what came right after it, and the newest.
 */
export function foldDeltas<T extends Keyed>(deltas: readonly Delta<T>[]): Delta<T>[] {
  const deleted = deltas.findLastIndex(({ type }) => type === "Deleted");
  const kept = new Set([0, deleted, deleted + 1, deltas.length - 1]);
  const folded: Delta<T>[] = [];
  for (const [at, delta] of deltas.entries()) if (kept.has(at)) joinDelta(folded, delta);
  return folded;
}
