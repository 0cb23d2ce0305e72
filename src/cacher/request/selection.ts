import { createHash } from "node:crypto";
import { isWide } from "../../base/text-memory.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Attributes } from "../../selector/attributes.ts";
import type { FieldSelector } from "../../selector/field-selector.ts";
import type { LabelSelector } from "../../selector/label-selector.ts";

/** Selects objects by their content. Pure, cheap, and never throws. */
export type Predicate = (object: StoredObject) => boolean;

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

/** Maximum length of all text parts together, in UTF-16 units, up to which a name spells them out. */
const maxSpelledOut = 128;

/**
 * Returns a short name for a list of parts: equal for equal parts, and different for different ones. A map with such
 * keys does not hold further copies of long selectors and prefixes. Texts are hashed in the encoding that they have in
 * memory, since encoding texts of some MiB in another way takes several times as long.
 */
export function shortName(...parts: readonly (string | number | boolean | null)[]): string {
  let length = 0;
  for (const part of parts) if (typeof part === "string") length += part.length;
  if (length <= maxSpelledOut) return JSON.stringify(parts);
  const hash = createHash("sha256");
  // The lengths make the borders between texts part of the name. Arrays stand for texts, and for nothing else.
  hash.update(
    JSON.stringify(
      parts.map((part) => (typeof part === "string" ? [part.length, isWide(part)] : part)),
    ),
  );
  for (const part of parts) {
    if (typeof part === "string") hash.update(part, isWide(part) ? "utf16le" : "latin1");
  }
  // Spelled-out names are JSON arrays, so none begins with this prefix.
  return `sha256:${hash.digest("base64")}`;
}
