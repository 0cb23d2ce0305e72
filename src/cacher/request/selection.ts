import type { StoredObject } from "../../model/object.ts";
import type { Predicate } from "../../model/predicate.ts";
import type { Attributes } from "../../selector/attributes.ts";
import type { FieldSelector } from "../../selector/field-selector.ts";
import type { LabelSelector } from "../../selector/label-selector.ts";
import { shortName } from "./identity.ts";

/** Estimated memory of a selection without requirements, with its two selectors and its functions, in bytes. */
const selectionBytes = 500;

/** A label and a field selector, parsed and bound to a resource. */
export class Selection {
  /** A short name, equal for selections with the same requirements, however they are spelled, and for no others. */
  readonly canonical: string;
  /** `matches` as a function. */
  readonly predicate: Predicate;
  /** Estimated cost of matching one object, as a number of requirements checked one by one. */
  readonly cost: number;
  /** Estimated memory, in bytes. */
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

  /** Both selectors in canonical form, which can be parsed again. Not cached. */
  get texts(): { readonly label: string; readonly field: string } {
    return { label: this.#labels.canonical, field: this.#fields.canonical };
  }

  /** Whether both selectors match the object's attributes. */
  matches(object: StoredObject): boolean {
    const attributes = this.#attributesOf(object);
    return this.#labels.matches(attributes) && this.#fields.matches(attributes);
  }

  /** The value that the selection requires this field to have; undefined if it allows several. */
  exactField(name: string): string | undefined {
    return this.#fields.exactField(name);
  }
}
