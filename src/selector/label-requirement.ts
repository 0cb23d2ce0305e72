import { ownText, textBytes } from "../base/text-memory.ts";
import { compareInt64 } from "./int64.ts";
import { includesText, sortedTexts } from "./sorted-texts.ts";

/** `=` and `!=` are what `in` and `notin` are with a single value. */
export type LabelOperator = "=" | "!=" | "in" | "notin" | "exists" | "absent" | ">" | "<";

/** The requirement's own fields and its place in a list, in bytes. */
const requirementBytes = 72;
/** A value's place in the list of values, in bytes. */
const placeBytes = 8;

/** What one label has to be, or must not be. Keeps nothing of the text that it was read from. */
export class LabelRequirement {
  readonly key: string;
  readonly operator: LabelOperator;
  /** Each once, sorted. None for `exists` and `absent`, several for `in` and `notin`, else one. */
  readonly values: readonly string[];

  /**
   * The number of values has to suit the operator; `in` and `notin` take one or more, in any order and
   * more than once. Those of `>` and `<` are as naturalInt64 returns them.
   */
  constructor(key: string, operator: LabelOperator, values: readonly string[]) {
    const sorted = sortedTexts(values);
    this.key = ownText(key);
    this.operator = sorted.length === 1 ? ofOneValue(operator) : operator;
    this.values = sorted.map(ownText);
  }

  /** The same for every spelling of the same requirement, and for no other. */
  get canonical(): string {
    return spell(this.key, this.operator, this.values);
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    let bytes = requirementBytes + textBytes(this.key);
    for (const value of this.values) bytes += placeBytes + textBytes(value);
    return bytes;
  }

  /** An absent label is none of the values, and it is neither above nor below any number. */
  matches(labels: ReadonlyMap<string, string>): boolean {
    const value = labels.get(this.key);
    switch (this.operator) {
      case "=":
        return value === this.values[0];
      case "!=":
        return value !== this.values[0];
      case "in":
        return value !== undefined && includesText(this.values, value);
      case "notin":
        return value === undefined || !includesText(this.values, value);
      case "exists":
        return value !== undefined;
      case "absent":
        return value === undefined;
      case ">":
        return value !== undefined && compareInt64(value, this.values[0] ?? "") > 0;
      case "<":
        return value !== undefined && compareInt64(value, this.values[0] ?? "") < 0;
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
