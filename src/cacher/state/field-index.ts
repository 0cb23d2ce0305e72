import type { StoredObject } from "../../model/object.ts";
import type { FieldReader } from "../request/object-attributes.ts";
import { OrderedStore } from "./ordered-store.ts";

/**
 * The objects of a resource by the values of the indexed fields, in key order for each value. Objects whose field is
 * empty are not indexed by it.
 */
export class FieldIndex {
  readonly fields: readonly string[];
  readonly #read: FieldReader;
  readonly #byField: ReadonlyMap<string, Map<string, OrderedStore>>;

  constructor(fields: readonly string[], read: FieldReader) {
    this.fields = fields;
    this.#read = read;
    this.#byField = new Map(fields.map((field) => [field, new Map<string, OrderedStore>()]));
  }

  /** Returns the objects with this value; undefined if no object has it. Callers must not change the result. */
  get(field: string, value: string): OrderedStore | undefined {
    return this.#byField.get(field)?.get(value);
  }

  /** Replaces `previous` by `object`; either may be undefined. */
  replace(previous: StoredObject | undefined, object: StoredObject | undefined): void {
    for (const [field, byValue] of this.#byField) {
      const before = previous === undefined ? "" : this.#read(previous, field);
      const after = object === undefined ? "" : this.#read(object, field);
      if (before !== after && previous !== undefined) remove(byValue, before, previous.key);
      if (object !== undefined && after !== "") add(byValue, after, object);
    }
  }
}

function add(byValue: Map<string, OrderedStore>, value: string, object: StoredObject): void {
  let objects = byValue.get(value);
  if (objects === undefined) {
    objects = new OrderedStore();
    byValue.set(value, objects);
  }
  objects.set(object);
}

function remove(byValue: Map<string, OrderedStore>, value: string, key: string): void {
  const objects = byValue.get(value);
  if (objects === undefined) return;
  objects.delete(key);
  if (objects.size === 0) byValue.delete(value);
}
