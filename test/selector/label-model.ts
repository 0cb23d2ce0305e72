import fc from "../property.ts";

/*
 * A simple implementation of label selectors without optimizations: their meaning, and their many spellings.
 */

export interface ModelRequirement {
  readonly key: string;
  readonly operator: "in" | "notin" | "exists" | "absent" | ">" | "<";
  /** One for `>` and `<`, at least one for `in` and `notin`. */
  readonly values: readonly string[];
}

const keys = ["a", "A", "in", "notin", "a.b_c-d", "example.com/a"];
const integers = ["0", "1", "7", "007", "10", "9223372036854775806", "9223372036854775807"];
const values = ["", "a", "in", "x_Y.z-0", ...integers];

const requirement: fc.Arbitrary<ModelRequirement> = fc.oneof(
  fc.record({
    key: fc.constantFrom(...keys),
    operator: fc.constantFrom("in", "notin"),
    values: fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 4 }),
  }),
  fc.record({
    key: fc.constantFrom(...keys),
    operator: fc.constantFrom("exists", "absent"),
    values: fc.constant([]),
  }),
  fc.record({
    key: fc.constantFrom(...keys),
    operator: fc.constantFrom(">", "<"),
    values: fc.constantFrom(...integers).map((integer) => [integer]),
  }),
);

export const modelSelector = fc.array(requirement, { maxLength: 4 });

/** Enough requirements to be merged by label; many objects meet most of them. */
export const largeModelSelector = fc
  .array(requirement, { minLength: 9, maxLength: 24 })
  .chain((all) =>
    fc.shuffledSubarray(
      all.map((one) => (one.operator === "in" ? { ...one, values: [...values] } : one)),
      { minLength: 9 },
    ),
  );

/** Of objects with unchecked labels. */
export const labels = fc
  .dictionary(
    fc.constantFrom(...keys),
    fc.constantFrom(
      ...values,
      "-1",
      "+8",
      "9223372036854775808",
      "-9223372036854775809",
      "1x",
      "é",
    ),
  )
  .map((record) => new Map(Object.entries(record)));

export function modelMatches(
  selector: readonly ModelRequirement[],
  labels: ReadonlyMap<string, string>,
): boolean {
  return selector.every(({ key, operator, values }) => {
    const value = labels.get(key);
    if (operator === "exists") return value !== undefined;
    if (operator === "absent") return value === undefined;
    if (operator === "in") return value !== undefined && values.includes(value);
    if (operator === "notin") return value === undefined || !values.includes(value);
    const bound = BigInt(values[0] ?? "");
    const integer = value === undefined ? undefined : asInteger(value);
    if (integer === undefined) return false;
    return operator === ">" ? integer > bound : integer < bound;
  });
}

function asInteger(text: string): bigint | undefined {
  const [, sign, digits] = /^([+-]?)(\d+)$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  const integer = BigInt(digits) * (sign === "-" ? -1n : 1n);
  return BigInt.asIntN(64, integer) === integer ? integer : undefined;
}

/** The requirements as a set: equal for selectors with the same meaning, in any order. */
export function meaning(selector: readonly ModelRequirement[]): string[] {
  const all = selector.map(({ key, operator, values }) => {
    const numeric = operator === ">" || operator === "<";
    const said = numeric ? values.map((value) => String(BigInt(value))) : [...values].sort();
    return JSON.stringify([key, operator, said]);
  });
  return [...new Set(all)].sort();
}

const blanks = fc.string({ unit: fc.constantFrom(" ", "\t", "\r", "\n"), maxLength: 2 });
const someBlanks = blanks.map((some) => ` ${some}`);

/** Some spelling of `selector`, in any order, with some requirements written twice. */
export function spelling(selector: readonly ModelRequirement[]): fc.Arbitrary<string> {
  return fc
    .tuple(fc.shuffledSubarray([...selector]), inAnyOrder(selector))
    .chain(([again, all]) => fc.tuple(...[...all, ...again].map(spellingOfOne)))
    .map((spelled) => spelled.join(","));
}

function spellingOfOne({ key, operator, values }: ModelRequirement): fc.Arbitrary<string> {
  switch (operator) {
    case "exists":
      return spaced(fc.constant(key));
    case "absent":
      return spaced(fc.constant("!"), fc.constant(key));
    case ">":
    case "<":
      return spaced(fc.constant(key), fc.constant(operator), fc.constant(values[0] ?? ""));
  }
  const set = fc
    .tuple(fc.constant(key), someBlanks, fc.constant(operator), spelledSet(values))
    .map((parts) => parts.join(""));
  if (values.length > 1) return spaced(set);
  const signs = operator === "in" ? fc.constantFrom("=", "==") : fc.constant("!=");
  return fc.oneof(spaced(set), spaced(fc.constant(key), signs, fc.constant(values[0] ?? "")));
}

/** The empty value only once: Kubernetes' grammar does not allow two in a row before the parenthesis. */
function spelledSet(values: readonly string[]): fc.Arbitrary<string> {
  const repeatable = values.filter((value) => value !== "");
  return fc
    .shuffledSubarray(repeatable)
    .chain((again) => inAnyOrder([...values, ...again]))
    .chain((all) => fc.tuple(...all.map((value) => spaced(fc.constant(value)))))
    .chain((all) => fc.tuple(blanks, blanks, fc.constant(all.join(","))))
    .map(([before, after, list]) => `${before}(${list})${after}`);
}

/** The parts, with whitespace around each. */
function spaced(...parts: fc.Arbitrary<string>[]): fc.Arbitrary<string> {
  return fc
    .tuple(...parts.flatMap((part) => [blanks, part]), blanks)
    .map((spelled) => spelled.join(""));
}

function inAnyOrder<T>(items: readonly T[]): fc.Arbitrary<T[]> {
  return fc.shuffledSubarray([...items], { minLength: items.length });
}
