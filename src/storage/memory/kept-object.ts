import { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";

/**
 * An object of the embedded store: its key is whole, and the key in its encoded form is relative to the prefix of the
 * resource, so that what readers of the resource get has an encoded form without a copy.
 */
export class KeptObject extends StoredObject {
  /** Where the key of the encoded form begins in `key`. */
  readonly formStart: number;

  constructor(key: string, formStart: number, relative: StoredObject) {
    super(
      key,
      relative.content,
      relative.createRevision,
      relative.modRevision,
      relative.version,
      relative.lease,
      relative.valueStart,
      relative.valueEnd,
      relative.encodedStart,
    );
    this.formStart = formStart;
  }
}

/** Makes the objects of the embedded store, from copies of what is written. */
export class ObjectMaker {
  readonly #slabs = new Slabs(smallestSlab);
  readonly #prefixLengthOf: (key: string) => number;

  /** `prefixLengthOf` returns the length of the prefix of a key's resource. */
  constructor(prefixLengthOf: (key: string) => number) {
    this.#prefixLengthOf = prefixLengthOf;
  }

  /** The object that is written at `revision` in place of `previous`. */
  put(
    key: string,
    value: Uint8Array,
    lease: bigint,
    revision: number,
    previous: StoredObject | undefined,
  ): StoredObject {
    const formStart = this.#prefixLengthOf(key);
    const relative = formStart === 0 ? key : key.slice(formStart);
    const object = this.#slabs.store(
      relative,
      Buffer.byteLength(relative),
      value,
      0,
      value.byteLength,
      previous?.createRevision ?? revision,
      revision,
      (previous?.version ?? 0) + 1,
      lease,
    );
    return formStart === 0 ? object : new KeptObject(key, formStart, object);
  }
}
