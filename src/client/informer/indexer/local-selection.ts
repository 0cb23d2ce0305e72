import { invalidRequest } from "../../../base/errors.ts";
import { defaultLabelsPath } from "../../../codec/codec.ts";
import { labelsIn, memberAt } from "../../../codec/json-codec.ts";
import { parseFieldPath } from "../../../codec/path.ts";
import { Attributes } from "../../../selector/attributes.ts";
import type { FieldSelector } from "../../../selector/field-selector.ts";
import type { LabelSelector } from "../../../selector/label-selector.ts";
import { parseFieldSelector } from "../../../selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../../selector/parse-label-selector.ts";
import { SelectorError } from "../../../selector/selector-error.ts";
import type { SelectorOptions } from "../../calls/options.ts";
import type { TypedObject } from "../../values/typed-object.ts";

/** The labels and fields of an object that selectors match. */
export interface LabelsAndFields {
  /** Labels by name. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Fields by name. A field that is absent is matched as the empty string. */
  readonly fields?: Readonly<Record<string, string>> | undefined;
}

const labelsPath = defaultLabelsPath.split(".");

/** Matches decoded objects against selectors, with the same result as the service has for stored ones. */
export class LocalSelection<T> {
  readonly #labels: LabelSelector;
  readonly #fields: FieldSelector;
  readonly #attributesOf: (object: TypedObject<T>) => Attributes;

  /** Throws INVALID_REQUEST for an invalid selector, or a field name that is not a path. */
  constructor(
    { labelSelector = "", fieldSelector = "" }: SelectorOptions,
    attributesOf: ((object: TypedObject<T>) => LabelsAndFields) | undefined,
  ) {
    this.#labels = parse("labelSelector", labelSelector, parseLabelSelector);
    this.#fields = parse("fieldSelector", fieldSelector, parseFieldSelector);
    this.#attributesOf =
      attributesOf === undefined
        ? attributesByPath(this.#fields.fields)
        : (object) => attributesFrom(attributesOf(object));
  }

  /** Whether it matches every object. */
  get empty(): boolean {
    return this.#labels.empty && this.#fields.empty;
  }

  matches(object: TypedObject<T>): boolean {
    const attributes = this.#attributesOf(object);
    return this.#labels.matches(attributes) && this.#fields.matches(attributes);
  }
}

function attributesFrom({ labels = {}, fields = {} }: LabelsAndFields): Attributes {
  return new Attributes(new Map(Object.entries(labels)), new Map(Object.entries(fields)));
}

/** Reads the labels and the selected fields by their paths. */
function attributesByPath(
  fields: readonly string[],
): (object: { readonly value: unknown }) => Attributes {
  const paths = fields.map((field) => {
    const path = parseFieldPath(field);
    if (path.problem !== undefined) throw invalidRequest("fieldSelector", path.problem);
    return [field, path.steps] as const;
  });
  return ({ value }) =>
    new Attributes(
      labelsIn(memberAt(value, labelsPath)),
      new Map(paths.map(([field, steps]) => [field, scalarText(memberAt(value, steps))])),
    );
}

/** Empty if the value is not a scalar. */
function scalarText(value: unknown): string {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "number":
    case "bigint":
      return String(value);
    default:
      return "";
  }
}

function parse<Selector>(
  field: string,
  text: string,
  parser: (text: string) => Selector,
): Selector {
  try {
    return parser(text);
  } catch (error) {
    if (!(error instanceof SelectorError)) throw error;
    throw invalidRequest(field, `${field} is invalid. ${error.message}`);
  }
}
