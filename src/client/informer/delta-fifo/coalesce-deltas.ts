import type { Delta, Deltas, Keyed } from "./delta.ts";

/** How many deltas of a key are never too many. */
export const coalescedLength = 4;

/**
 * The same history with no more than `coalescedLength` deltas, which ends as it did: the first, the last deletion and what
 * came right after it, and the newest. Two deletions are never in a row.
 */
export function coalesceDeltas<T extends Keyed>(deltas: Deltas<T>): Delta<T>[] {
  const deleted = deltas.findLastIndex(({ type }) => type === "Deleted");
  const first = deleted > 0 && deltas[0]?.type === "Deleted" ? deleted : 0;
  const kept = new Set([first, deleted, deleted + 1, deltas.length - 1]);
  return deltas.filter((_, at) => kept.has(at));
}
