import type { StoredObject } from "../../model/object.ts";
import type { Predicate } from "../../model/predicate.ts";
import type { Attributes } from "../../selector/attributes.ts";
import type { FieldSelector } from "../../selector/field-selector.ts";
import type { LabelSelector } from "../../selector/label-selector.ts";
import { shortName } from "./identity.ts";

/** A selection without requirements, with its two selectors and the functions that it brings, in bytes. */
const selectionBytes = 500;

/** What a label selector and a field selector pick of a resource's objects. */
export class Selection {
  /** A short name for all that pick by the same requirements, however they were spelt, and for no others. */
  readonly canonical: string;
  readonly predicate: Predicate;
  /** About what it costs to match an object, in requirements that are held against it one by one. */
  readonly cost: number;
  /** What it takes to keep it, in bytes: an estimate. */
  readonly bytes: number;
  readonly #labels: LabelSelector;
  readonly #fields: FieldSelector;
  readonly #attributesOf: (object: StoredObject) => Attributes;

  constructor(
    labels: LabelSelector,
    fields: FieldSelector,
    attributesOf: (object: StoredObject) => Attributes,
  ) {
    this.#labels = labels;
    this.#fields = fields;
    this.#attributesOf = attributesOf;
    this.canonical = shortName(labels.canonical, fields.canonical);
    this.predicate = (object) => this.matches(object);
    this.cost = labels.cost + fields.cost;
    this.bytes = selectionBytes + labels.bytes + fields.bytes;
  }

  matches(object: StoredObject): boolean {
    const attributes = this.#attributesOf(object);
    return this.#labels.matches(attributes) && this.#fields.matches(attributes);
  }

  /** The value that this field has in everything that is picked, if there is one. */
  exactField(name: string): string | undefined {
    return this.#fields.exactField(name);
  }
}
