import { ownText, textBytes } from "../base/text-memory.ts";
import type { Attributes } from "./attributes.ts";
import { Selector } from "./selector.ts";
import { includesText, sortedTexts } from "./sorted-texts.ts";

/** Memory of the requirement's own fields and its place in a list, in bytes. */
const requirementBytes = 48;
/** Memory of a FieldRule without its values, and of a value's place in it, in bytes. */
const ruleBytes = 120;
const placeBytes = 8;

/** A required or forbidden value of one field. Keeps no reference to the text that it was parsed from. */
export class FieldRequirement {
  readonly field: string;
  readonly operator: "=" | "!=";
  readonly value: string;

  constructor(field: string, operator: "=" | "!=", value: string) {
    this.field = ownText(field);
    this.operator = operator;
    this.value = ownText(value);
  }

  /** Equal for all spellings of the same requirement, and only for these. */
  get canonical(): string {
    return `${this.field}${this.operator}${this.value.replace(/[\\,=]/g, "\\$&")}`;
  }

  /** Estimated memory in bytes. */
  get bytes(): number {
    return requirementBytes + textBytes(this.field) + textBytes(this.value);
  }
}

/** All requirements on one field. */
class FieldRule {
  readonly #field: string;
  /** The required values, sorted: with more than one nothing matches. */
  readonly #is: readonly string[];
  /** The forbidden values, sorted. */
  readonly #isNot: readonly string[];

  constructor(field: string, requirements: readonly FieldRequirement[]) {
    const valuesOf = (operator: "=" | "!="): readonly string[] =>
      sortedTexts(requirements.filter((it) => it.operator === operator).map(({ value }) => value));
    this.#field = field;
    this.#is = valuesOf("=");
    this.#isNot = valuesOf("!=");
  }

  get bytes(): number {
    return ruleBytes + placeBytes * (this.#is.length + this.#isNot.length);
  }

  /** An absent field is the empty string. */
  matches(fields: ReadonlyMap<string, string>): boolean {
    const value = fields.get(this.#field) ?? "";
    const [required, another] = this.#is;
    if (required !== undefined && (value !== required || another !== undefined)) return false;
    return !includesText(this.#isNot, value);
  }
}

/** Selects objects by their fields. */
export class FieldSelector extends Selector<FieldRequirement> {
  /** The names of the used fields, without duplicates. The selector does not know whether a resource declares them. */
  readonly fields: readonly string[];
  /** One for each field, so that the cost per object does not grow with the requirements on one field. */
  readonly #rules: readonly FieldRule[];

  constructor(requirements: readonly FieldRequirement[]) {
    super(requirements);
    const byField = Map.groupBy(this.requirements, ({ field }) => field);
    this.fields = [...byField.keys()];
    this.#rules = [...byField].map(([field, same]) => new FieldRule(field, same));
  }

  protected get indexBytes(): number {
    return this.#rules.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  get cost(): number {
    return this.#rules.length;
  }

  matches(attributes: Attributes): boolean {
    for (const rule of this.#rules) {
      if (!rule.matches(attributes.fields)) return false;
    }
    return true;
  }

  /**
   * The only value of `field` in all matching objects; undefined if there is no such value. The empty string includes
   * objects without the field.
   */
  exactField(field: string): string | undefined {
    for (const requirement of this.requirements) {
      if (requirement.field === field && requirement.operator === "=") return requirement.value;
    }
    return undefined;
  }
}
