import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";

/** What one field has to be, or must not be. */
export class FieldRequirement {
  readonly field: string;
  readonly operator: "=" | "!=";
  readonly value: string;
  /** The same for every spelling of the same requirement, and for no other. */
  readonly canonical: string;

  constructor(field: string, operator: "=" | "!=", value: string) {
    this.field = field;
    this.operator = operator;
    this.value = value;
    this.canonical = `${field}${operator}${value.replace(/[\\,=]/g, "\\$&")}`;
  }

  /** An absent field is the empty string. */
  matches(fields: ReadonlyMap<string, string>): boolean {
    const equal = (fields.get(this.field) ?? "") === this.value;
    return equal === (this.operator === "=");
  }
}

/** Picks objects by their fields: those that meet every requirement, so all if there is none. */
export class FieldSelector {
  /** Each once, in canonical order. */
  readonly requirements: readonly FieldRequirement[];
  /** A spelling that all selectors with the same requirements share. Can be parsed again. */
  readonly canonical: string;
  /** The names of the fields it looks at, each once. Whether a resource has them is not known here. */
  readonly fields: readonly string[];

  constructor(requirements: readonly FieldRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    this.canonical = this.requirements.map(({ canonical }) => canonical).join(",");
    this.fields = [...new Set(this.requirements.map(({ field }) => field))];
  }

  /** Whether every object matches, whatever its fields. */
  get empty(): boolean {
    return this.requirements.length === 0;
  }

  matches(attributes: Attributes): boolean {
    for (const requirement of this.requirements) {
      if (!requirement.matches(attributes.fields)) return false;
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
