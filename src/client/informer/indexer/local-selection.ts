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

/** What selectors see of an object. */
export interface LabelsAndFields {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** One that is not in here is the empty string. */
  readonly fields?: Readonly<Record<string, string>> | undefined;
}

const labelsPath = defaultLabelsPath.split(".");

/** Picks decoded objects by selectors, as the service picks stored ones. */
export class LocalSelection<T> {
  readonly #labels: LabelSelector;
  readonly #fields: FieldSelector;
  readonly #attributesOf: (object: TypedObject<T>) => Attributes;

  /** Throws INVALID_REQUEST of a selector that can't be read, or names a field that is no path. */
  constructor(
    { labelSelector = "", fieldSelector = "" }: SelectorOptions,
    attributesOf: ((object: TypedObject<T>) => LabelsAndFields) | undefined,
  ) {
    this.#labels = parse("labelSelector", labelSelector, parseLabelSelector);
    this.#fields = parse("fieldSelector", fieldSelector, parseFieldSelector);
    this.#attributesOf =
      attributesOf === undefined
        ? attributesByPath(this.#fields.fields)
        : (object) => told(attributesOf(object));
  }

  /** Whether it picks everything. */
  get empty(): boolean {
    return this.#labels.empty && this.#fields.empty;
  }

  matches(object: TypedObject<T>): boolean {
    const attributes = this.#attributesOf(object);
    return this.#labels.matches(attributes) && this.#fields.matches(attributes);
  }
}

function told({ labels = {}, fields = {} }: LabelsAndFields): Attributes {
  return new Attributes(new Map(Object.entries(labels)), new Map(Object.entries(fields)));
}

/** Reads what a selector asks for where its name says. */
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

/** Empty for what is no scalar. */
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
    throw invalidRequest(field, `${field} can't be read. ${error.message}`);
  }
}
