/** Whatever has a key is an object here. */
export interface Keyed {
  readonly key: string;
}

/**
 * What happened to an object.
 *
 * - `Added`, `Updated`: it was written.
 * - `Replaced`: it is part of a state that was listed as a whole; it may be new, changed, or as it was.
 * - `Sync`: nothing happened to it; it is handed out again because someone wants to look at all there is.
 * - `Deleted`: it is gone, and `object` is what is known of it last.
 */
export type Delta<T extends Keyed> =
  | { readonly type: "Added" | "Updated" | "Replaced" | "Sync"; readonly object: T }
  | { readonly type: "Deleted"; readonly object: T | DeletedFinalStateUnknown<T> };

/** What happened to one object, oldest first; never empty. */
export type Deltas<T extends Keyed> = readonly Delta<T>[];

/**
 * An object that is gone, found out by listing: nobody saw it being deleted, so its final state may be a
 * later one than `object`, the last that was seen. It may even have been deleted and made anew in between.
 */
export class DeletedFinalStateUnknown<T extends Keyed> {
  readonly key: string;
  readonly object: T;

  constructor(object: T) {
    this.key = object.key;
    this.object = object;
  }
}

/** The object as it last was, or as it was last seen: what most want of one that is gone, however that was found out. */
export function lastKnown<T extends Keyed>(gone: T | DeletedFinalStateUnknown<T>): T {
  return gone instanceof DeletedFinalStateUnknown ? gone.object : gone;
}

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
