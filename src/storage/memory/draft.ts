import type { StoredObject } from "../../model/object.ts";

/**
 * The state of the embedded store within one change: what is written here becomes one revision, or nothing if the change
 * throws. Reads see the writes before them. Keys are whole, and may be raw (model/key-bytes.ts).
 */
export interface Draft {
  /** The store's revision before the change. */
  readonly before: number;
  /** The revision that its writes get. */
  readonly revision: number;
  get(key: string): StoredObject | undefined;
  /** The objects from `from` up to `to`, which is not included, in key order; undefined: up to the last key. */
  range(from: string, to: string | undefined): Iterable<StoredObject>;
  /** Writes an object, and returns it. Throws LEASE_NOT_FOUND, and INVALID_REQUEST if it has put or deleted the key before. */
  put(key: string, value: Uint8Array, lease: bigint): StoredObject;
  /**
   * Deletes an object, and returns what it was; undefined: it does not exist, and nothing changes. Throws INVALID_REQUEST if it
   * has put the key before.
   */
  delete(key: string): StoredObject | undefined;
}

/** What a change has led to. It is kept: the store resolves with it when the journal has it. */
export interface Changed<T> {
  readonly result: T;
  /** The store's revision afterwards: that of the change, if it wrote anything. */
  readonly revision: number;
}
