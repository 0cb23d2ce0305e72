import { textBytes } from "../base/text-memory.ts";

/**
 * What selectors see of an object: its labels, and those of its fields that its resource declares.
 * Immutable, and shared by everyone who asks about that object.
 */
export class Attributes {
  /** A label that is not in here is absent, which is not the same as an empty one. */
  readonly labels: ReadonlyMap<string, string>;
  /** A field that is not in here is the empty string. */
  readonly fields: ReadonlyMap<string, string>;
  /** What it takes to keep them, in bytes: an estimate. Names of fields are those of the codec, for all objects. */
  readonly bytes: number;

  constructor(labels: ReadonlyMap<string, string>, fields: ReadonlyMap<string, string>) {
    this.labels = labels.size === 0 ? empty : labels;
    this.fields = fields.size === 0 ? empty : fields;
    let bytes = attributesBytes + mapBytes(labels.size) + mapBytes(fields.size);
    for (const [name, value] of labels) bytes += textBytes(name) + textBytes(value);
    for (const value of fields.values()) bytes += textBytes(value);
    this.bytes = bytes;
  }
}

/** One for all: an empty map of its own takes more than many an object. */
const empty: ReadonlyMap<string, string> = new Map();

/** The object itself. */
const attributesBytes = 40;

/**
 * What a map of so many entries takes, without them: V8 doubles its table, from four entries on, of each of which it
 * keeps three words, and half a word for its place.
 */
function mapBytes(size: number): number {
  if (size === 0) return 0;
  return 72 + 28 * Math.max(4, 2 ** Math.ceil(Math.log2(size)));
}

/** Of an object that says nothing about itself: one whose value could not be decoded, for instance. */
export const noAttributes = new Attributes(empty, empty);
