import { invalidRequest, type WatchFanoutError } from "../errors.ts";
import { type Attributes, noAttributes } from "../selector/attributes.ts";
import { parseFieldSelector } from "../selector/parse-field-selector.ts";
import { parseLabelSelector } from "../selector/parse-label-selector.ts";
import { SelectorError } from "../selector/selector-error.ts";
import type { StoredObject } from "../storage/object.ts";
import type { FieldReader } from "./field-index.ts";
import { Selection } from "./selection.ts";

/** What reads labels and fields out of a resource's objects: a codec that counts and logs. */
export interface AttributeReader {
  /** Whether objects have any at all. Without, no selector makes sense. */
  readonly hasAttributes: boolean;
  /** The fields that objects may have. */
  readonly declaredFields: ReadonlySet<string>;
  /** `noAttributes` for a value that can't be decoded. */
  attributesOf(key: string, value: Uint8Array): Attributes;
}

/** For a resource whose values nobody looks into. */
export const opaqueAttributes: AttributeReader = {
  hasAttributes: false,
  declaredFields: new Set(),
  attributesOf: () => noAttributes,
};

/** What a resource's objects say about themselves, each read once, and what is to be found by it. */
export class Attribution {
  /** The fields that objects and watchers are found by. All of them are declared. */
  readonly indexes: readonly string[];
  readonly #reader: AttributeReader;

  constructor(reader: AttributeReader, indexes: readonly string[]) {
    this.#reader = reader;
    this.indexes = indexes;
  }

  /** Read when it is first asked for, and kept with the object. */
  of(object: StoredObject): Attributes {
    if (!this.#reader.hasAttributes) return noAttributes;
    object.attributes ??= this.#reader.attributesOf(object.key, object.value);
    return object.attributes as Attributes;
  }

  readonly readField: FieldReader = (object, field) => this.of(object).fields.get(field) ?? "";

  /**
   * What the two selectors pick, undefined if both are empty: everything.
   *
   * Throws INVALID_REQUEST for what can't be parsed, for a field that the resource does not declare, and
   * for any selector on a resource without attributes.
   */
  select(labelSelector: string, fieldSelector: string): Selection | undefined {
    const labels = parse("label_selector", labelSelector, parseLabelSelector);
    const fields = parse("field_selector", fieldSelector, parseFieldSelector);
    if (labels.empty && fields.empty) return undefined;
    if (!this.#reader.hasAttributes) {
      throw invalidRequest(
        labels.empty ? "field_selector" : "label_selector",
        "The objects of this resource have no labels and no fields to select by, as it has no codec: " +
          "leave the selector out.",
      );
    }
    for (const field of fields.fields) {
      if (!this.#reader.declaredFields.has(field)) throw this.#undeclared(field);
    }
    return new Selection(labels, fields, (object) => this.of(object));
  }

  #undeclared(field: string): WatchFanoutError {
    const declared = [...this.#reader.declaredFields].sort();
    const which = declared.length === 0 ? "none" : declared.join(", ");
    return invalidRequest(
      "field_selector",
      `This resource declares no field ${JSON.stringify(field)} to select by; it declares: ${which}.`,
    );
  }
}

function parse<T>(field: string, text: string, parser: (text: string) => T): T {
  try {
    return parser(text);
  } catch (error) {
    if (error instanceof SelectorError) throw invalidRequest(field, error.message);
    throw error;
  }
}
