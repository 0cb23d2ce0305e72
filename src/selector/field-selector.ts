import { ownText, textBytes } from "../base/text-memory.ts";
import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";
import { includesText, sortedTexts } from "./sorted-texts.ts";

/** The requirement's own fields and its place in a list, in bytes. */
const requirementBytes = 48;
/** All that is required of one field, without the values, and a value's place in it, in bytes. */
const ruleBytes = 120;
const placeBytes = 8;

/** What one field has to be, or must not be. Keeps nothing of the text that it was read from. */
export class FieldRequirement {
  readonly field: string;
  readonly operator: "=" | "!=";
  readonly value: string;

  constructor(field: string, operator: "=" | "!=", value: string) {
    this.field = ownText(field);
    this.operator = operator;
    this.value = ownText(value);
  }

  /** The same for every spelling of the same requirement, and for no other. */
  get canonical(): string {
    return `${this.field}${this.operator}${this.value.replace(/[\\,=]/g, "\\$&")}`;
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    return requirementBytes + textBytes(this.field) + textBytes(this.value);
  }
}

/** All that is required of one field. */
class FieldRule {
  readonly #field: string;
  /** What it has to be, sorted: nothing matches if these are several. */
  readonly #is: readonly string[];
  /** None of these, sorted. */
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

/** Picks objects by their fields: those that meet every requirement, so all if there is none. */
export class FieldSelector {
  /** Each once, in canonical order. */
  readonly requirements: readonly FieldRequirement[];
  /** The names of the fields it looks at, each once. Whether a resource has them is not known here. */
  readonly fields: readonly string[];
  /** One for each field, so that an object costs no more where much is required of one. */
  readonly #rules: readonly FieldRule[];

  constructor(requirements: readonly FieldRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    const byField = Map.groupBy(this.requirements, ({ field }) => field);
    this.fields = [...byField.keys()];
    this.#rules = [...byField].map(([field, same]) => new FieldRule(field, same));
  }

  /** A spelling that all selectors with the same requirements share. Can be parsed again. Made for whoever asks. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    const ruleBytes = this.#rules.reduce((sum, { bytes }) => sum + bytes, 0);
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, ruleBytes);
  }

  /** About what it costs to match an object, in requirements that are held against it one by one. */
  get cost(): number {
    return this.#rules.length;
  }

  /** Whether every object matches, whatever its fields. */
  get empty(): boolean {
    return this.requirements.length === 0;
  }

  matches(attributes: Attributes): boolean {
    for (const rule of this.#rules) {
      if (!rule.matches(attributes.fields)) return false;
    }
    return true;
  }

  /**
   * The one value that `field` must have in every object that matches; undefined if none is named. The
   * empty string stands for objects without the field, too.
   */
  exactField(field: string): string | undefined {
    for (const requirement of this.requirements) {
      if (requirement.field === field && requirement.operator === "=") return requirement.value;
    }
    return undefined;
  }
}
