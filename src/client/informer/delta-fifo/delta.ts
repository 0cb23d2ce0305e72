/** Any object with a key. */
export interface Keyed {
  /** Unique within the resource. */
  readonly key: string;
}

/**
 * A change of an object.
 *
 * - `Added`, `Updated`: it was written.
 * - `Replaced`: it is part of a list; it may be new, changed, or unchanged.
 * - `Sync`: it is unchanged, and is delivered again by a resync.
 * - `Deleted`: it was deleted, and `object` is its last known state.
 */
export type Delta<T extends Keyed> =
  | { readonly type: "Added" | "Updated" | "Replaced" | "Sync"; readonly object: T }
  | { readonly type: "Deleted"; readonly object: T | DeletedFinalStateUnknown<T> };

/** The changes of one object, oldest first; never empty. */
export type Deltas<T extends Keyed> = readonly Delta<T>[];

/**
 * A deleted object whose deletion was detected by a list, not by a watch. Its final state may be later than `object`,
 * the last known state. It may even have been deleted and created again in between.
 */
export class DeletedFinalStateUnknown<T extends Keyed> {
  /** The key of the object. */
  readonly key: string;
  /** The last known state. */
  readonly object: T;

  constructor(object: T) {
    this.key = object.key;
    this.object = object;
  }
}

/** Returns the last known state of a deleted object, however its deletion was detected. */
export function lastKnown<T extends Keyed>(gone: T | DeletedFinalStateUnknown<T>): T {
  return gone instanceof DeletedFinalStateUnknown ? gone.object : gone;
}

/** Maximum length of the deltas of a key after coalescing. */
export const coalescedLength = 4;

/**
 * Coalesces deltas to at most `coalescedLength`: the first, the last deletion and the delta after it, and the latest.
 * Never leaves two deletions in sequence.
 */
export function coalesceDeltas<T extends Keyed>(deltas: Deltas<T>): Delta<T>[] {
  const deleted = deltas.findLastIndex(({ type }) => type === "Deleted");
  const first = deleted > 0 && deltas[0]?.type === "Deleted" ? deleted : 0;
  const kept = new Set([first, deleted, deleted + 1, deltas.length - 1]);
  return deltas.filter((_, at) => kept.has(at));
}
