import { textBytes } from "../base/text-memory.ts";

/**
 * The part of an object that selectors use: its labels, and the fields that its resource declares. Immutable, and
 * shared by all users of the object.
 */
export class Attributes {
  /** A missing label is absent, which differs from an empty one. */
  readonly labels: ReadonlyMap<string, string>;
  /** A missing field is the empty string. */
  readonly fields: ReadonlyMap<string, string>;
  /** Estimated memory in bytes, without the names of fields, which all objects share. */
  readonly bytes: number;

  constructor(labels: ReadonlyMap<string, string>, fields: ReadonlyMap<string, string>) {
    this.labels = labels.size === 0 ? empty : labels;
    this.fields = fields.size === 0 ? empty : fields;
    let bytes = attributesBytes + mapBytes(labels.size) + mapBytes(fields.size);
    for (const [name, value] of labels) bytes += textBytes(name) + textBytes(value);
    for (const value of fields.values()) bytes += textBytes(value);
    this.bytes = bytes;
  }

  /** Whether both are empty because the value can't be decoded. */
  get isUndecodable(): boolean {
    return this === undecodableAttributes;
  }
}

/** Shared: an empty map per object would take more memory than many objects. */
const empty: ReadonlyMap<string, string> = new Map();

/** Memory of the instance itself, in bytes. */
const attributesBytes = 40;

/**
 * Memory of a map with this many entries, without the entries, in bytes: V8 doubles its table, from four entries on; an
 * entry takes three words, and half a word for its place.
 */
function mapBytes(size: number): number {
  if (size === 0) return 0;
  return 72 + 28 * Math.max(4, 2 ** Math.ceil(Math.log2(size)));
}

/** The attributes of an object without any. */
export const noAttributes = new Attributes(empty, empty);

/** Those of an object whose value can't be decoded: none. */
export const undecodableAttributes = new Attributes(empty, empty);
