/**
 * What selectors see of an object: its labels, and those of its fields that its resource declares.
 * Immutable, and shared by everyone who asks about that object.
 */
export class Attributes {
  /** A label that is not in here is absent, which is not the same as an empty one. */
  readonly labels: ReadonlyMap<string, string>;
  /** A field that is not in here is the empty string. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(labels: ReadonlyMap<string, string>, fields: ReadonlyMap<string, string>) {
    this.labels = labels;
    this.fields = fields;
  }
}

/** Of an object that says nothing about itself: one whose value could not be decoded, for instance. */
export const noAttributes = new Attributes(new Map(), new Map());
