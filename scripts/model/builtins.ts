import { equals, QuintMap, QuintSet, type Value } from "./values.ts";

/*
 * The operators of Quint that the model uses, by their names in its intermediate representation. Those that evaluate
 * only some of their arguments, or that are actions, are compiled: see compile.ts.
 */

type Operator = (...args: Value[]) => Value;
/** An argument that is an operator itself. */
type Lambda = (...args: Value[]) => Value;

const int = (value: Value | undefined): number => value as number;
const list = (value: Value | undefined): readonly Value[] => value as readonly Value[];
const set = (value: Value | undefined): QuintSet => value as QuintSet;
const map = (value: Value | undefined): QuintMap => value as QuintMap;
const lambda = (value: Value | undefined): Lambda => value as unknown as Lambda;
const elements = (value: Value | undefined): Value[] => [...set(value).byId.values()];

export const builtins: Readonly<Record<string, Operator>> = {
  eq: (one, other) => equals(one as Value, other as Value),
  neq: (one, other) => !equals(one as Value, other as Value),
  not: (value) => value !== true,
  iadd: (one, other) => int(one) + int(other),
  isub: (one, other) => int(one) - int(other),
  imul: (one, other) => int(one) * int(other),
  iuminus: (value) => -int(value),
  ilt: (one, other) => int(one) < int(other),
  ilte: (one, other) => int(one) <= int(other),
  igt: (one, other) => int(one) > int(other),
  igte: (one, other) => int(one) >= int(other),

  List: (...items) => items,
  range: (from, upTo) => numbers(int(from), int(upTo) - 1),
  append: (items, item) => [...list(items), item as Value],
  concat: (items, others) => {
    if (list(items).length === 0) return list(others);
    return list(others).length === 0 ? list(items) : [...list(items), ...list(others)];
  },
  length: (items) => list(items).length,
  nth: (items, at) => itemAt(list(items), int(at)),
  head: (items) => itemAt(list(items), 0),
  tail: (items) => list(items).slice(1),
  slice: (items, from, end) => {
    if (int(from) < 0 || int(end) < int(from) || int(end) > list(items).length) {
      throw new Error(`a list of ${list(items).length} has no part from ${from} to ${end}`);
    }
    return list(items).slice(int(from), int(end));
  },
  replaceAt: (items, at, item) => list(items).with(int(at), item as Value),
  indices: (items) => QuintSet.of(list(items).keys()),
  select: (items, test) => list(items).filter((item) => lambda(test)(item) === true),
  foldl: (items, first, step) =>
    list(items).reduce((soFar, item) => lambda(step)(soFar, item), first as Value),

  Set: (...items) => QuintSet.of(items),
  to: (from, last) => QuintSet.of(numbers(int(from), int(last))),
  contains: (items, item) => set(items).has(item as Value),
  union: (items, others) => new QuintSet(new Map([...set(items).byId, ...set(others).byId])),
  intersect: (items, others) =>
    new QuintSet(new Map([...set(items).byId].filter(([id]) => set(others).byId.has(id)))),
  exclude: (items, others) =>
    new QuintSet(new Map([...set(items).byId].filter(([id]) => !set(others).byId.has(id)))),
  size: (items) => set(items).byId.size,
  exists: (items, test) => elements(items).some((item) => lambda(test)(item) === true),
  forall: (items, test) => elements(items).every((item) => lambda(test)(item) === true),
  filter: (items, test) =>
    QuintSet.of(elements(items).filter((item) => lambda(test)(item) === true)),
  fold: (items, first, step) =>
    elements(items).reduce((soFar, item) => lambda(step)(soFar, item), first as Value),
  powerset: (items) =>
    QuintSet.of(
      elements(items)
        .reduce<Value[][]>((all, item) => all.flatMap((some) => [some, [...some, item]]), [[]])
        .map((some) => QuintSet.of(some)),
    ),
  mapBy: (keys, toValue) =>
    new QuintMap(
      new Map([...set(keys).byId].map(([id, key]) => [id, [key, lambda(toValue)(key)] as const])),
    ),

  keys: (of) => QuintSet.of([...map(of).byId.values()].map(([key]) => key)),
  get: (of, key) => map(of).get(key as Value),
  set: (of, key, value) => {
    map(of).get(key as Value);
    return map(of).with(key as Value, value as Value);
  },
  put: (of, key, value) => map(of).with(key as Value, value as Value),
};

function numbers(from: number, last: number): number[] {
  return Array.from({ length: Math.max(0, last - from + 1) }, (_, i) => from + i);
}

function itemAt(items: readonly Value[], at: number): Value {
  const item = items[at];
  if (item === undefined) throw new Error(`a list of ${items.length} has no item ${at}`);
  return item;
}
