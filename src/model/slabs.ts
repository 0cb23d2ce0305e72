import { bytesFieldSize, WireWriter } from "../protobuf/wire-writer.ts";
import { StoredObject } from "./object.ts";
import { objectFieldsSize, objectTag, writeObjectFields } from "./object-encoding.ts";

/**
 * The first slab is of so many bytes; each is twice as large as the one before it, up to the largest. A good
 * size for objects of which some stay much longer than others.
 */
export const smallestSlab = 2 * 1024;

/** How large the slabs of what is listed become, in bytes. */
export const listedSlab = 64 * 1024;

/** What does not fit so many times into the largest slab gets a buffer of its own. */
const leastPerSlab = 4;

/**
 * Makes objects that keep their content, in its encoded form, in buffers which they share: slabs.
 *
 * A buffer of its own costs some 300 bytes of memory, more than many an object. And a view of the message
 * that an object came in would hold that whole. So objects are copied one after another into a slab, each
 * as the field `object` or `items` of the service's messages:
 *
 *     tag, length, create_revision, mod_revision, version, lease, key, value
 *
 * A protobuf message's fields may come in any order. With the value at the end, one more number tells where
 * it is.
 *
 * A slab stays as long as one object in it does. How much that may hold in vain depends on what is put into
 * it together, so whoever makes Slabs says how large they become:
 * - What is listed is put together in key order, and when all but one object of each slab have been written
 *   anew, the slabs still take what the list did. They never take more, so large ones are good.
 * - What is watched, or written, goes on forever: if of each slab one object is left that nobody writes
 *   again, then every object of the state holds a slab. So these are as small as `smallestSlab`, and an
 *   object holds no more than that in vain.
 */
export class Slabs {
  readonly #largest: number;
  #slab: Buffer = none;
  #used = 0;
  /** What has been reserved last is in this: the slab, or a buffer of the object's own. */
  #target: Buffer = none;
  #next = smallestSlab;
  readonly #writer = new WireWriter(none);

  /** `largest`, in bytes: 2 KiB or more; or 0, and every object gets a buffer of its own. */
  constructor(largest: number) {
    this.#largest = largest;
  }

  /**
   * An object whose value is the part of `source` from `valueStart` to `valueEnd`, which is copied. `key` is
   * of `keyBytes` bytes in UTF-8.
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
   * The same object, with its content copied from the slab that it shares with others, and `key`, which is equal
   * to its own. An object that has no encoded form is returned as it is.
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

  /** Where in `#target` so many bytes are free. */
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

const none = Buffer.alloc(0);
