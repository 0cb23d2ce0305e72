import { getHeapStatistics } from "node:v8";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";

/*
 * Estimates of the embedded store's memory, in bytes, rounded up. `estimatedBytes` does not fit: most of a small
 * object's memory is overhead. Measured with Node.js 24: an object of 16 bytes takes 490 bytes, 700 more with a lease
 * of its own, and 510 for each of its changes that is kept as history.
 */

/** A current object: the object, its versions, and its place in the tree. */
const standingBytes = 480;
/** A lease with its set of keys and its timer. */
const leaseBytes = 768;
/** An event, and a transaction of this event alone. */
const eventBytes = 320;
/** An object that only history still has. */
const versionBytes = 160;
/** The own buffer of a value that does not fit a slab. */
const bufferBytes = 320;
/** Minimum size of a value that does not fit a slab, in bytes. */
const unslabbed = 512;

/** Size of a key, a value and their numbers. The key counts twice, as it is kept as a string, too. */
function contentBytes({ key, valueBytes }: StoredObject): number {
  const bytes = 4 * key.length + valueBytes + 32;
  return bytes < unslabbed ? bytes : bytes + bufferBytes;
}

/** Memory of a current object. */
export function stateBytes(object: StoredObject): number {
  return standingBytes + contentBytes(object) + (object.lease === 0n ? 0 : leaseBytes);
}

/** Memory of a change in the history, with the previous object. */
export function logBytes({ object, previous }: WatchEvent): number {
  const before = previous === undefined ? 0 : versionBytes + contentBytes(previous);
  return eventBytes + versionBytes + contentBytes(object) + before;
}

/** Memory that V8's heap limit includes besides the old generation, in bytes. */
const youngGeneration = 192 * 1024 ** 2;

/** Default maximum memory of a store, in bytes: etcd's default for `--quota-backend-bytes`. */
const maxDefaultStateBytes = 2 * 1024 ** 3;

/**
 * Default maximum memory of a store. It must be full before the heap is, so it gets a quarter of the process's memory for
 * long-lived data, as the Cachers in front of it take about the same again.
 */
export function defaultStateBytes(): number {
  const { heap_size_limit: limit } = getHeapStatistics();
  const longLived = Math.max(limit / 4, limit - youngGeneration);
  return Math.floor(Math.min(maxDefaultStateBytes, longLived / 4));
}
