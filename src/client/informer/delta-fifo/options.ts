import type { DeletedFinalStateUnknown, Deltas, Keyed } from "./delta.ts";

/** The objects that the consumer of a DeltaFIFO holds, such as an Indexer. */
export interface KnownObjects<T extends Keyed> {
  /** Returns the object; undefined if it does not exist. */
  get(key: string): T | undefined;
  /** Iterates over all keys. */
  keys(): Iterable<string>;
}

/** Options of a DeltaFIFO. */
export interface DeltaFIFOOptions<T extends Keyed> {
  /** The objects that the consumer holds, to detect deletions in a relist. */
  readonly known: KnownObjects<T>;
  /** Maximum number of deltas that are kept one by one; beyond it they are coalesced by key. Default 10,000. */
  readonly capacity?: number | undefined;
  /** Maximum bytes of these deltas, as `bytesOf` counts; beyond it they are coalesced too. Default: unlimited. */
  readonly capacityBytes?: number | undefined;
  /** Returns the memory of an object in a delta, in bytes. Default: 0. */
  readonly bytesOf?: ((object: T | DeletedFinalStateUnknown<T>) => number) | undefined;
}

/**
 * Processes the deltas of one key. `isInInitialList`: the key was part of the first list. If it throws or rejects,
 * the deltas are put back.
 */
export type ProcessDeltas<T extends Keyed, Result> = (
  deltas: Deltas<T>,
  isInInitialList: boolean,
) => Result;
