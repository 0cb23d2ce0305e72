import { StoredObject } from "./object.ts";

/**
 * The first slab is of so many bytes; each is twice as large as the one before it, up to the largest. A good
 * size for objects of which some stay much longer than others.
 */
export const smallestSlab = 2 * 1024;

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
    const fields =
      numberField(createRevision) +
      numberField(modRevision) +
      numberField(version) +
      (lease === 0n ? 0 : 1 + bigSize(lease)) +
      contentField(keyBytes) +
      (valueBytes === 0 ? 0 : contentField(valueBytes));
    const size = contentField(fields);
    const start = this.#reserve(size);
    const slab = this.#target;

    let at = writeNumber(slab, start, 0x12, fields);
    if (createRevision !== 0) at = writeNumber(slab, at, 0x18, createRevision);
    if (modRevision !== 0) at = writeNumber(slab, at, 0x20, modRevision);
    if (version !== 0) at = writeNumber(slab, at, 0x28, version);
    if (lease !== 0n) at = writeBig(slab, at, 0x30, lease);
    at = writeNumber(slab, at, 0x0a, keyBytes);
    at += slab.write(key, at, keyBytes, "utf8");
    if (valueBytes > 0) at = writeNumber(slab, at, 0x12, valueBytes);
    // Takes any bytes, and spares a view of the part.
    Buffer.prototype.copy.call(source, slab, at, valueStart, valueEnd);
    return new StoredObject(
      key,
      slab,
      createRevision,
      modRevision,
      version,
      lease,
      at,
      start + size,
      start,
    );
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

/** How many bytes a number from 0 to 2^53-1 takes as a varint. */
function numberSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
  return size;
}

function bigSize(value: bigint): number {
  let size = 1;
  for (let rest = value >> 7n; rest > 0n; rest >>= 7n) size++;
  return size;
}

function numberField(value: number): number {
  return value === 0 ? 0 : 1 + numberSize(value);
}

function contentField(length: number): number {
  return 1 + numberSize(length) + length;
}

/** Writes the tag and the number, and returns where they end. */
function writeNumber(bytes: Buffer, position: number, tag: number, value: number): number {
  let at = position;
  let rest = value;
  bytes[at++] = tag;
  while (rest >= 0x8000_0000) {
    bytes[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  while (rest >= 0x80) {
    bytes[at++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  bytes[at++] = rest;
  return at;
}

function writeBig(bytes: Buffer, position: number, tag: number, value: bigint): number {
  let at = position;
  let rest = value;
  bytes[at++] = tag;
  while (rest >= 0x80n) {
    bytes[at++] = Number(rest & 0x7fn) | 0x80;
    rest >>= 7n;
  }
  bytes[at++] = Number(rest);
  return at;
}
