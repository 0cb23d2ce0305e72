/**
 * One object as it stands at one revision. Immutable and shared by everyone who holds it: the cache,
 * its history, every watcher, every answer.
 */
export class StoredObject {
  /** Relative to the resource's prefix; never empty, never with a lone surrogate. */
  readonly key: string;
  readonly value: Uint8Array;
  readonly createRevision: number;
  /** The revision that last changed it; of a deleted object, the one that removed it. */
  readonly modRevision: number;
  /** How often it was written since it was created, from 1. */
  readonly version: number;
  /** 0n: none. Uses 63 bits, more than a `number` holds. */
  readonly lease: bigint;
  /** What a codec has read out of the value, kept here by whoever asked first. Not part of what it is. */
  attributes: object | undefined;

  constructor(
    key: string,
    value: Uint8Array,
    createRevision: number,
    modRevision: number,
    version: number,
    lease: bigint,
  ) {
    this.key = key;
    this.value = value;
    this.createRevision = createRevision;
    this.modRevision = modRevision;
    this.version = version;
    this.lease = lease;
    this.attributes = undefined;
  }

  /** The same object as removed at `revision`: all else is as it last was. */
  deletedAt(revision: number): StoredObject {
    const deleted = new StoredObject(
      this.key,
      this.value,
      this.createRevision,
      revision,
      this.version,
      this.lease,
    );
    deleted.attributes = this.attributes;
    return deleted;
  }
}

/**
 * What an object of this size costs to hold, in bytes: what every bound in bytes counts. An estimate:
 * its content and 64 bytes for the numbers and references around it.
 */
export function weight(object: StoredObject): number {
  return object.key.length + object.value.byteLength + 64;
}
