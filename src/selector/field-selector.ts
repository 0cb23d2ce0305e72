import { ownText, textBytes } from "../text-memory.ts";
import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";

/** The requirement's own fields and its place in a list, in bytes. */
const requirementBytes = 48;

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
  /** The names of the fields it looks at, each once. Whether a resource has them is not known here. */
  readonly fields: readonly string[];

  constructor(requirements: readonly FieldRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    this.fields = [...new Set(this.requirements.map(({ field }) => field))];
  }

  /** A spelling that all selectors with the same requirements share. Can be parsed again. Made for whoever asks. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, 0);
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
