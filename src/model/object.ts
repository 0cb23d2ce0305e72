import { hasBuffer } from "../protobuf/text.ts";

/** The labels and fields of an object's value, as a codec read them. */
export interface ShownAttributes {
  readonly labels: ReadonlyMap<string, string>;
  /** Those that the resource declares, by name. An absent one is not in it. */
  readonly fields: ReadonlyMap<string, string>;
  /** Whether both are empty because the value can't be decoded. */
  readonly isUndecodable: boolean;
  /** What they take in memory, in bytes. */
  readonly bytes: number;
}

const noValue = new Uint8Array(0);

/**
 * One object at one revision. Immutable, and shared by all that hold it: the cache, the event window, every watcher,
 * every response.
 *
 * The value is a part of `content`. That may be a slab shared with other objects (see Slabs), which also has the
 * object's encoded form.
 */
export class StoredObject {
  /** Relative to the resource's prefix; never empty, without lone surrogates. */
  readonly key: string;
  readonly createRevision: number;
  /** The revision that last changed the object; in a DELETED event, the revision of the event. */
  readonly modRevision: number;
  /** Number of writes since it was created, from 1. */
  readonly version: number;
  /** 0n: no lease. Has up to 63 bits, more than a `number` holds. */
  readonly lease: bigint;
  /**
   * Of an object that a client received: what the service sent in place of the value, with view ATTRIBUTES, or since the
   * value can't be reduced to the parts that were asked for; otherwise undefined. In the service: the attributes of the
   * value, cached by their first reader. Not part of the object's identity.
   */
  attributes: ShownAttributes | undefined;
  /** Contains the value, from `valueStart` up to `valueEnd`. */
  readonly content: Uint8Array;
  readonly valueStart: number;
  readonly valueEnd: number;
  /**
   * Position in `content` of the encoded form, which ends with the value: a field 2 of a message, with tag and length,
   * that is a watchfanout.v1.StoredObject. -1: there is no encoded form.
   */
  readonly encodedStart: number;

  /** Without the last three parameters, `content` is the value. */
  constructor(
    key: string,
    content: Uint8Array,
    createRevision: number,
    modRevision: number,
    version: number,
    lease: bigint,
    valueStart: number = 0,
    valueEnd: number = content.byteLength,
    encodedStart: number = -1,
  ) {
    this.key = key;
    this.createRevision = createRevision;
    this.modRevision = modRevision;
    this.version = version;
    this.lease = lease;
    this.attributes = undefined;
    this.content = content;
    this.valueStart = valueStart;
    this.valueEnd = valueEnd;
    this.encodedStart = encodedStart;
  }

  /** Read-only. If the object is in a slab, each call makes a new view. */
  get value(): Uint8Array {
    const { content, valueStart, valueEnd } = this;
    if (valueEnd - valueStart === content.byteLength) return content;
    return new Uint8Array(content.buffer, content.byteOffset + valueStart, valueEnd - valueStart);
  }

  /** Length of the value in bytes. */
  get valueBytes(): number {
    return this.valueEnd - this.valueStart;
  }

  /**
   * Returns the same object, with the same content, without cached attributes: for readers whose attributes must not stay
   * with this one.
   */
  withoutAttributes(): StoredObject {
    return new StoredObject(
      this.key,
      this.content,
      this.createRevision,
      this.modRevision,
      this.version,
      this.lease,
      this.valueStart,
      this.valueEnd,
      this.encodedStart,
    );
  }

  /** Returns the same object at the same revision with an empty value: itself if it has one. */
  withoutValue(): StoredObject {
    if (this.valueBytes === 0) return this;
    const { key, createRevision, modRevision, version, lease } = this;
    return new StoredObject(key, noValue, createRevision, modRevision, version, lease);
  }

  /** Returns this object as deleted at `revision`: everything else stays as it was last. */
  deletedAt(revision: number): StoredObject {
    const deleted = new StoredObject(
      this.key,
      this.content,
      this.createRevision,
      revision,
      this.version,
      this.lease,
      this.valueStart,
      this.valueEnd,
    );
    deleted.attributes = this.attributes;
    return deleted;
  }
}

/**
 * Estimated size of an object as it is sent or stored, in bytes: key, value, and 64 bytes for the numbers and the
 * framing; at least its encoded form, if it has one. Sizes of pages and stores count this.
 */
export function estimatedBytes(object: StoredObject): number {
  const estimated = object.key.length + object.valueBytes + 64;
  const { encodedStart } = object;
  return encodedStart < 0 ? estimated : Math.max(estimated, object.valueEnd - encodedStart);
}

/**
 * Estimated memory of an object in bytes, which every bound of memory counts. It increases when the object's attributes
 * are read: code that adds it to a sum keeps the number, or reads the attributes first.
 */
export function memoryBytes(object: StoredObject): number {
  return estimatedBytes(object) + (object.attributes?.bytes ?? 0);
}

/** Whether both are the same object at the same revision, in all that a store says about it. */
export function isSameObject(one: StoredObject, other: StoredObject): boolean {
  return (
    one.key === other.key &&
    one.modRevision === other.modRevision &&
    one.createRevision === other.createRevision &&
    one.version === other.version &&
    one.lease === other.lease &&
    hasSameValue(one, other)
  );
}

/** Compares without making views, as a whole state may be compared with another. */
function hasSameValue(one: StoredObject, other: StoredObject): boolean {
  if (one.content === other.content && one.valueStart === other.valueStart) {
    return one.valueEnd === other.valueEnd;
  }
  const { content, valueStart, valueEnd } = other;
  if (!hasBuffer) {
    const { value } = one;
    const isSameByte = (byte: number, i: number): boolean => byte === content[valueStart + i];
    return one.valueBytes === other.valueBytes && value.every(isSameByte);
  }
  const ranges = [valueStart, valueEnd, one.valueStart, one.valueEnd] as const;
  return Buffer.prototype.compare.call(one.content, content, ...ranges) === 0;
}
