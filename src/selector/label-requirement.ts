import { compareInt64 } from "./int64.ts";

/** `=` and `!=` are what `in` and `notin` are with a single value. */
export type LabelOperator = "=" | "!=" | "in" | "notin" | "exists" | "absent" | ">" | "<";

/** What one label has to be, or must not be. */
export class LabelRequirement {
  readonly key: string;
  readonly operator: LabelOperator;
  /** Sorted. None for `exists` and `absent`, several for `in` and `notin`, else one. */
  readonly values: ReadonlySet<string>;
  /** The same for every spelling of the same requirement, and for no other. */
  readonly canonical: string;
  /** The one value of those operators that have one. */
  readonly #value: string;

  /**
   * The number of values has to suit the operator; `in` and `notin` take one or more, in any order and
   * more than once. Those of `>` and `<` are as naturalInt64 returns them.
   */
  constructor(key: string, operator: LabelOperator, values: Iterable<string>) {
    const sorted = [...new Set(values)].sort();
    this.key = key;
    this.operator = sorted.length === 1 ? ofOneValue(operator) : operator;
    this.values = new Set(sorted);
    this.#value = sorted[0] ?? "";
    this.canonical = spell(key, this.operator, sorted);
  }

  /** An absent label is none of the values, and it is neither above nor below any number. */
  matches(labels: ReadonlyMap<string, string>): boolean {
    const value = labels.get(this.key);
    switch (this.operator) {
      case "=":
        return value === this.#value;
      case "!=":
        return value !== this.#value;
      case "in":
        return value !== undefined && this.values.has(value);
      case "notin":
        return value === undefined || !this.values.has(value);
      case "exists":
        return value !== undefined;
      case "absent":
        return value === undefined;
      case ">":
        return value !== undefined && compareInt64(value, this.#value) > 0;
      case "<":
        return value !== undefined && compareInt64(value, this.#value) < 0;
    }
  }
}

function ofOneValue(operator: LabelOperator): LabelOperator {
  if (operator === "in") return "=";
  return operator === "notin" ? "!=" : operator;
}

function spell(key: string, operator: LabelOperator, values: readonly string[]): string {
  switch (operator) {
    case "exists":
      return key;
    case "absent":
      return `!${key}`;
    case "in":
    case "notin":
      return `${key} ${operator} (${values.join(",")})`;
    default:
      return `${key}${operator}${values.join("")}`;
  }
}
