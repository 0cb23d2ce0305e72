import { invalidRequest } from "../../../base/errors.ts";
import type { SelectorOptions } from "../../calls/options.ts";
import type { TypedObject } from "../../values/typed-object.ts";
import type { ReadonlyIndexer } from "./indexer.ts";
import { type LabelsAndFields, LocalSelection } from "./local-selection.ts";

/**
 * The name of the index that a Lister finds namespaces by. It adds it unless there is one of that name, which
 * is then taken for it.
 */
export const namespaceIndex = "namespace";

/** The namespace that a key is in, or an object by its key: the part up to the first `/`; empty where there is none. */
export function namespaceOf(of: string | { readonly key: string }): string {
  const key = typeof of === "string" ? of : of.key;
  return key.slice(0, Math.max(0, key.indexOf("/")));
}

export interface ListerOptions<T> {
  /**
   * What selectors see of an object. Default: labels are the string members of `metadata.labels` in the value,
   * and the name of a field is its path there, as the JSON codec has it.
   */
  readonly attributesOf?: ((object: TypedObject<T>) => LabelsAndFields) | undefined;
}

export interface ListerQuery extends SelectorOptions {
  /** Only objects of this namespace; empty: those without one. Default: all. */
  readonly namespace?: string | undefined;
}

/**
 * Lists what an informer has at hand, by namespace and selector, without asking any server. The objects of
 * one namespace are found by an index; selectors look at each of them.
 */
export class Lister<T> {
  readonly #indexer: ReadonlyIndexer<TypedObject<T>>;
  readonly #attributesOf: ((object: TypedObject<T>) => LabelsAndFields) | undefined;

  constructor(indexer: ReadonlyIndexer<TypedObject<T>>, options: ListerOptions<T> = {}) {
    this.#indexer = indexer;
    this.#attributesOf = options.attributesOf;
    if (!indexer.indexNames.includes(namespaceIndex)) {
      indexer.addIndexers({ [namespaceIndex]: (object) => [namespaceOf(object)] });
    }
  }

  get(key: string): TypedObject<T> | undefined {
    return this.#indexer.get(key);
  }

  /** In key order. Throws INVALID_REQUEST of a selector that can't be read. */
  list(query: ListerQuery = {}): TypedObject<T>[] {
    const { namespace } = query;
    const selection = new LocalSelection(query, this.#attributesOf);
    const objects =
      namespace === undefined
        ? this.#indexer.list()
        : this.#indexer.byIndex(namespaceIndex, namespace);
    return selection.empty ? objects : objects.filter((object) => selection.matches(object));
  }

  /** The namespaces that have objects, in no particular order. */
  namespaces(): string[] {
    return this.#indexer.indexValues(namespaceIndex);
  }

  /** The same for one namespace. Throws INVALID_REQUEST of a name with a `/`, which no namespace has. */
  namespace(namespace: string): NamespaceLister<T> {
    if (namespace.includes("/")) {
      throw invalidRequest(
        "namespace",
        `${JSON.stringify(namespace)} is no namespace: that is the part of a key up to its first slash.`,
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
  /** `name` is what follows the namespace and its `/` in the key. */
  get(name: string): TypedObject<T> | undefined;
  /** In key order. Throws INVALID_REQUEST of a selector that can't be read. */
  list(query?: SelectorOptions): TypedObject<T>[];
}
