import { ownText, textBytes } from "../base/text-memory.ts";
import { compareInt64 } from "./int64.ts";
import { includesText, sortedTexts } from "./sorted-texts.ts";

/** `=` and `!=` are `in` and `notin` with a single value. */
type LabelOperator = "=" | "!=" | "in" | "notin" | "exists" | "absent" | ">" | "<";

/** Memory of the requirement's own fields and its place in a list, in bytes. */
const requirementBytes = 72;
/** Memory of a value's place in the list of values, in bytes. */
const placeBytes = 8;

/** A requirement on one label. Keeps no reference to the text that it was parsed from. */
export class LabelRequirement {
  readonly key: string;
  readonly operator: LabelOperator;
  /** Without duplicates, sorted. None for `exists` and `absent`, several for `in` and `notin`, else one. */
  readonly values: readonly string[];

  /**
   * The number of values must fit the operator; `in` and `notin` take one or more, in any order, with or without
   * duplicates. Those of `>` and `<` are results of naturalInt64.
   */
  constructor(key: string, operator: LabelOperator, values: readonly string[]) {
    const sorted = sortedTexts(values);
    this.key = ownText(key);
    this.operator = sorted.length === 1 ? ofOneValue(operator) : operator;
    this.values = sorted.map(ownText);
  }

  /** Equal for all spellings of the same requirement, and only for these. */
  get canonical(): string {
    return spell(this.key, this.operator, this.values);
  }

  /** Estimated memory in bytes. */
  get bytes(): number {
    let bytes = requirementBytes + textBytes(this.key);
    for (const value of this.values) bytes += placeBytes + textBytes(value);
    return bytes;
  }

  /** An absent label equals no value, and is neither greater nor less than any number. */
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
