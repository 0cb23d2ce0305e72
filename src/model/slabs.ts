import { hasBuffer, newBytes } from "../protobuf/text.ts";
import { bytesFieldSize, WireWriter } from "../protobuf/wire-writer.ts";
import { StoredObject } from "./object.ts";
import { objectFieldsSize, objectTag, writeObjectFields } from "./object-encoding.ts";

/**
 * Size of the first slab in bytes. Each slab is twice as large as the one before it, up to the largest. This size suits
 * objects of which some live much longer than others.
 */
export const smallestSlab = 2 * 1024;

/** Maximum size of slabs for listed objects, in bytes. */
export const listedSlab = 64 * 1024;

/** An object of which fewer than this number fit the largest slab gets a buffer of its own. */
const leastPerSlab = 4;

/**
 * Makes objects that keep their content, in encoded form (see object-encoding.ts), in shared buffers: slabs.
 *
 * A buffer of its own costs about 300 bytes of memory per object, which is more than many objects. A view of the
 * message that an object came in would keep all of the message alive. So objects are copied into a slab, one after
 * another.
 *
 * A slab is freed when its last object is. What one object may keep alive depends on which objects share a slab, so the
 * creator of a Slabs sets the maximum size of a slab:
 * - Listed objects share slabs in key order. When all but one object of each slab have been written again, the slabs
 *   still take as much as the list did, but never more. So large slabs are fine.
 * - Watched and written objects have no such bound: if one object of each slab is never written again, every object of
 *   the state keeps a slab alive. So these slabs are of `smallestSlab` bytes, which bounds what an object keeps alive.
 *
 * In a browser each object has bytes of its own and no encoded form, which only services need.
 */
export class Slabs {
  readonly #largest: number;
  #slab: Buffer = none;
  #used = 0;
  /** The buffer of the last reservation: the slab, or the object's own. */
  #target: Buffer = none;
  #next = smallestSlab;
  readonly #writer = new WireWriter(none);

  /** `largest`: maximum size of a slab in bytes, at least 2 KiB; 0: every object gets a buffer of its own. */
  constructor(largest: number) {
    this.#largest = largest;
  }

  /**
   * Makes an object from copies. Its value is the part of `source` from `valueStart` to `valueEnd`; `keyBytes` is the
   * size of `key` in UTF-8.
   */
  store(
    key: string,
    keyBytes: number,
    source: Uint8Array,
    valueStart: number,
    valueEnd: number,
    createRevision: number,
    modRevision: number,
    version: number,
    lease: bigint,
  ): StoredObject {
    if (!hasBuffer) {
      const value = source.slice(valueStart, valueEnd);
      return new StoredObject(key, value, createRevision, modRevision, version, lease);
    }
    const valueBytes = valueEnd - valueStart;
    const fieldsBytes = objectFieldsSize(
      keyBytes,
      valueBytes,
      createRevision,
      modRevision,
      version,
      lease,
    );
    const size = bytesFieldSize(fieldsBytes);
    const start = this.#reserve(size);
    this.#writer.moveTo(this.#target, start);
    const at = writeObjectFields(
      this.#writer,
      objectTag,
      fieldsBytes,
      key,
      keyBytes,
      createRevision,
      modRevision,
      version,
      lease,
      source,
      valueStart,
      valueEnd,
    );
    return new StoredObject(
      key,
      this.#target,
      createRevision,
      modRevision,
      version,
      lease,
      at,
      start + size,
      start,
    );
  }

  /**
   * Returns the same object with its content copied out of the slab that it shares, and with `key`, which equals its
   * own. Returns an object without an encoded form as it is.
   */
  copy(object: StoredObject, key: string): StoredObject {
    const { content, encodedStart, valueStart, valueEnd } = object;
    if (encodedStart < 0) return object;
    const start = this.#reserve(valueEnd - encodedStart);
    this.#target.set(content.subarray(encodedStart, valueEnd), start);
    const copied = new StoredObject(
      key,
      this.#target,
      object.createRevision,
      object.modRevision,
      object.version,
      object.lease,
      start + valueStart - encodedStart,
      start + valueEnd - encodedStart,
      start,
    );
    copied.attributes = object.attributes;
    return copied;
  }

  /** Reserves this number of bytes in `#target`, and returns their position. */
  #reserve(size: number): number {
    if (size * leastPerSlab > this.#largest) {
      this.#target = Buffer.allocUnsafeSlow(size);
      return 0;
    }
    if (this.#used + size > this.#slab.length) {
      while (this.#next < size) this.#next *= 2;
      this.#slab = Buffer.allocUnsafeSlow(this.#next);
      this.#used = 0;
      this.#next = Math.min(this.#next * 2, this.#largest);
    }
    this.#target = this.#slab;
    this.#used += size;
    return this.#used - size;
  }
}

const none = newBytes(0) as Buffer;
