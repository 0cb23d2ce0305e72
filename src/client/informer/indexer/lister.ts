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
import type { ReadonlyIndexer } from "./indexer.ts";

/**
 * The name of the namespace index of a Lister. The Lister adds it, unless the indexer already has an index of this
 * name, which is then used.
 */
export const namespaceIndex = "namespace";

/**
 * Returns the namespace of a key, or of an object by its key: the part before the first `/`; empty if there is no
 * `/`.
 */
export function namespaceOf(of: string | { readonly key: string }): string {
  const key = typeof of === "string" ? of : of.key;
  return key.slice(0, Math.max(0, key.indexOf("/")));
}

/** Options of a Lister. */
export interface ListerOptions<T> {
  /**
   * Returns the labels and fields that selectors match. Default: the labels are the string members of
   * `metadata.labels` in the value, and the name of a field is its path in the value, as for the service's JSON
   * codec.
   */
  readonly attributesOf?: ((object: TypedObject<T>) => LabelsAndFields) | undefined;
}

/** What to list: a namespace, selectors, or both. */
export interface ListerQuery extends SelectorOptions {
  /** Only objects of this namespace; empty for objects without one. Default: all namespaces. */
  readonly namespace?: string | undefined;
}

/**
 * Lists the objects of an informer by namespace and selector, from memory. A namespace is looked up in an index;
 * selectors are evaluated for each object of it.
 */
export class Lister<T> {
  readonly #indexer: ReadonlyIndexer<TypedObject<T>>;
  readonly #attributesOf: ((object: TypedObject<T>) => LabelsAndFields) | undefined;

  /** Adds the namespace index to `indexer`, unless it has one. */
  constructor(indexer: ReadonlyIndexer<TypedObject<T>>, options: ListerOptions<T> = {}) {
    this.#indexer = indexer;
    this.#attributesOf = options.attributesOf;
    if (!indexer.indexNames.includes(namespaceIndex)) {
      indexer.addIndexers({ [namespaceIndex]: (object) => [namespaceOf(object)] });
    }
  }

  /** Returns the object; undefined if it does not exist. */
  get(key: string): TypedObject<T> | undefined {
    return this.#indexer.get(key);
  }

  /** Returns the matching objects, in key order. Throws INVALID_REQUEST for an invalid selector. */
  list(query: ListerQuery = {}): TypedObject<T>[] {
    const { namespace } = query;
    const selection = new LocalSelection(query, this.#attributesOf);
    const objects =
      namespace === undefined
        ? this.#indexer.list()
        : this.#indexer.byIndex(namespaceIndex, namespace);
    return selection.empty ? objects : objects.filter((object) => selection.matches(object));
  }

  /** Returns the namespaces that have objects, in no particular order. */
  namespaces(): string[] {
    return this.#indexer.indexValues(namespaceIndex);
  }

  /** Returns a lister for one namespace. Throws INVALID_REQUEST for a name with a `/`, which no namespace has. */
  namespace(namespace: string): NamespaceLister<T> {
    if (namespace.includes("/")) {
      throw invalidRequest(
        "namespace",
        `${JSON.stringify(namespace)} is not a namespace: a namespace is the part of a key before its first slash.`,
      );
    }
    return {
      get: (name) => this.get(namespace === "" ? name : `${namespace}/${name}`),
      list: (query) => this.list({ ...query, namespace }),
    };
  }
}

/** The objects of one namespace. */
export interface NamespaceLister<T> {
  /** Returns an object by the part of its key after the namespace and its `/`; undefined if it does not exist. */
  get(name: string): TypedObject<T> | undefined;
  /** Returns the matching objects, in key order. Throws INVALID_REQUEST for an invalid selector. */
  list(query?: SelectorOptions): TypedObject<T>[];
}

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
