/**
 * Values of a Quint model in JavaScript: numbers, strings, booleans, arrays for lists, plain objects for records, and the
 * two classes of this file. All are immutable.
 *
 * The fields of a record are sorted by name where it is made, so that equal records list them in one order.
 */
export type Value = number | string | boolean | readonly Value[] | QuintSet | QuintMap | Fields;

export interface Fields {
  readonly [name: string]: Value;
}

/** What a value is found by in a set or a map: itself, or for a compound one its canonical text. */
type Id = number | string | boolean;

/** A set, in the order in which its elements were added. */
export class QuintSet {
  readonly byId: ReadonlyMap<Id, Value>;

  constructor(byId: ReadonlyMap<Id, Value>) {
    this.byId = byId;
  }

  static of(values: Iterable<Value>): QuintSet {
    const byId = new Map<Id, Value>();
    for (const value of values) byId.set(idOf(value), value);
    return new QuintSet(byId);
  }

  has(value: Value): boolean {
    return this.byId.has(idOf(value));
  }
}

/** A function from a finite set of keys. */
export class QuintMap {
  readonly byId: ReadonlyMap<Id, readonly [key: Value, value: Value]>;

  constructor(byId: ReadonlyMap<Id, readonly [Value, Value]>) {
    this.byId = byId;
  }

  /** Throws if there is no such key. */
  get(key: Value): Value {
    const entry = this.byId.get(idOf(key));
    if (entry === undefined) throw new Error(`the map has no key ${textOf(key)}`);
    return entry[1];
  }

  with(key: Value, value: Value): QuintMap {
    return new QuintMap(new Map(this.byId).set(idOf(key), [key, value]));
  }
}

export function idOf(value: Value): Id {
  return typeof value === "object" ? textOf(value) : value;
}

/** Texts of compound values, since states share most of their parts with the states before them. */
const texts = new WeakMap<object, string>();

/** The canonical text of a value: two values of one type are equal if and only if their texts are. */
export function textOf(value: Value): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object") return String(value);
  const known = texts.get(value);
  if (known !== undefined) return known;
  const text = compoundText(value);
  texts.set(value, text);
  return text;
}

function compoundText(value: Exclude<Value, Id>): string {
  if (value instanceof QuintSet) return `{${[...value.byId.values()].map(textOf).sort().join()}}`;
  if (value instanceof QuintMap) {
    const entries = [...value.byId.values()].map(([key, own]) => `${textOf(key)}:${textOf(own)}`);
    return `<${entries.sort().join()}>`;
  }
  if (isList(value)) return `[${value.map(textOf).join()}]`;
  return `(${Object.values(value).map(textOf).join()})`;
}

export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

export function equals(one: Value, other: Value): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object") return false;
  if (isList(one) && isList(other)) {
    return one.length === other.length && one.every((item, i) => equals(item, other[i] ?? false));
  }
  if (one instanceof QuintSet || one instanceof QuintMap) return textOf(one) === textOf(other);
  const [own, others] = [one as Fields, other as Fields];
  for (const name in own) if (!equals(own[name] ?? false, others[name] ?? false)) return false;
  return true;
}
