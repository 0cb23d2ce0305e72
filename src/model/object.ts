/** What a codec has read out of an object's value, as far as that matters here. */
export interface CachedAttributes {
  /** What it takes to keep it, in bytes. */
  readonly bytes: number;
}

/**
 * One object as it stands at one revision. Immutable and shared by everyone who holds it: the cache,
 * its history, every watcher, every answer.
 *
 * Its value is a part of `content`, which may be a slab that it shares with others (see Slabs), and which
 * then has its encoded form too.
 */
export class StoredObject {
  /** Relative to the resource's prefix; never empty, never with a lone surrogate. */
  readonly key: string;
  readonly createRevision: number;
  /** The revision that last changed it; of a deleted object, the one that removed it. */
  readonly modRevision: number;
  /** How often it was written since it was created, from 1. */
  readonly version: number;
  /** 0n: none. Uses 63 bits, more than a `number` holds. */
  readonly lease: bigint;
  /**
   * What a codec has read out of the value, kept here by whoever asked first. Not part of what it is.
   *
   * @internal
   */
  attributes: CachedAttributes | undefined;
  /** Holds the value, from `valueStart` up to `valueEnd`. */
  readonly content: Uint8Array;
  readonly valueStart: number;
  readonly valueEnd: number;
  /**
   * Where in `content` its encoded form begins, which ends with the value: the field 2 of a message, tag and
   * length included, that is a watchfanout.v1.StoredObject. -1: there is none.
   */
  readonly encodedStart: number;

  /** Without the last three, `content` is the value. */
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

  /** Not to be changed. Where the object is in a slab, a view of it that is made for each who asks. */
  get value(): Uint8Array {
    const { content, valueStart, valueEnd } = this;
    if (valueEnd - valueStart === content.byteLength) return content;
    return new Uint8Array(content.buffer, content.byteOffset + valueStart, valueEnd - valueStart);
  }

  /** The value's length in bytes. */
  get valueBytes(): number {
    return this.valueEnd - this.valueStart;
  }

  /** The same object as removed at `revision`: all else is as it last was. */
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
 * About how large an object is where it is sent or stored, in bytes: what the sizes of pages and stores count. Its
 * key and its value, and 64 bytes for the numbers and what is around them.
 */
export function estimatedBytes(object: StoredObject): number {
  return object.key.length + object.valueBytes + 64;
}

/**
 * What an object costs to hold, in bytes: what every bound of what is kept in memory counts. An estimate, which
 * grows when its attributes are read: whoever adds it to a sum keeps the number, or has them read before.
 */
export function memoryBytes(object: StoredObject): number {
  return estimatedBytes(object) + (object.attributes?.bytes ?? 0);
}

/** Whether both are the same object at the same revision, in everything that a store says of it. */
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

/** Without a view of either, as a whole state may have to be compared with another. */
function hasSameValue(one: StoredObject, other: StoredObject): boolean {
  if (one.content === other.content && one.valueStart === other.valueStart) {
    return one.valueEnd === other.valueEnd;
  }
  const { content, valueStart, valueEnd } = other;
  const ranges = [valueStart, valueEnd, one.valueStart, one.valueEnd] as const;
  return Buffer.prototype.compare.call(one.content, content, ...ranges) === 0;
}
