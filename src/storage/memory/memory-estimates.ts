import { getHeapStatistics } from "node:v8";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";

/*
 * What the embedded store takes for what it holds, in bytes, rather a little too much than too little. `estimatedBytes` is no
 * measure for that: of a small object most is what is around it. Measured with Node.js 24, where an object of 16 bytes
 * takes 490 as it stands, 700 more with a lease of its own, and 510 for each change of it that is kept as history.
 */

/** An object as it stands: itself, its versions, and its place in the tree. */
const standingBytes = 480;
/** A lease, with its set of keys and its timer. */
const leaseBytes = 768;
/** An event and the transaction that it may be alone in. */
const eventBytes = 320;
/** An object that history still has. */
const versionBytes = 160;
/** What does not fit into a slab has a buffer of its own. */
const bufferBytes = 320;
/** A value of this size does not fit into a slab, in bytes. */
const unslabbed = 512;

/** The bytes of a key, a value and the numbers beside them, wherever they are: the key is kept as a string, too. */
function contentBytes({ key, valueBytes }: StoredObject): number {
  const bytes = 4 * key.length + valueBytes + 32;
  return bytes < unslabbed ? bytes : bytes + bufferBytes;
}

/** What an object takes as it stands. */
export function stateBytes(object: StoredObject): number {
  return standingBytes + contentBytes(object) + (object.lease === 0n ? 0 : leaseBytes);
}

/** What a change takes as long as history has it, with the object before. */
export function logBytes({ object, previous }: WatchEvent): number {
  const before = previous === undefined ? 0 : versionBytes + contentBytes(previous);
  return eventBytes + versionBytes + contentBytes(object) + before;
}

/** What V8's limit of the heap has in it beside the old generation, in bytes. */
const youngGeneration = 192 * 1024 ** 2;

/** The most that a store holds by default, in bytes: etcd's default for `--quota-backend-bytes`. */
const maxDefaultStateBytes = 2 * 1024 ** 3;

/**
 * How much one of so many stores may hold by default, so that they are full before the heap is: all together a quarter
 * of what the process has for what lives long, since a Cacher in front of each takes about as much once more.
 */
export function defaultStateBytes(stores: number): number {
  const { heap_size_limit: limit } = getHeapStatistics();
  const longLived = Math.max(limit / 4, limit - youngGeneration);
  return Math.floor(Math.min(maxDefaultStateBytes, longLived / 4) / stores);
}
