import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";
import type { LabelRequirement } from "./label-requirement.ts";

/** Picks objects by their labels: those that meet every requirement, so all if there is none. */
export class LabelSelector {
  /** Each once, in canonical order. */
  readonly requirements: readonly LabelRequirement[];
  /** A spelling that all selectors with the same requirements share. Can be parsed again. */
  readonly canonical: string;

  constructor(requirements: readonly LabelRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    this.canonical = this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** Whether every object matches, whatever its labels. */
  get empty(): boolean {
    return this.requirements.length === 0;
  }

  matches(attributes: Attributes): boolean {
    for (const requirement of this.requirements) {
      if (!requirement.matches(attributes.labels)) return false;
    }
    return true;
  }

  /** The one value that `key` must have in every object that matches; undefined if none is named. */
  exactLabel(key: string): string | undefined {
    for (const requirement of this.requirements) {
      if (requirement.key !== key || requirement.operator !== "=") continue;
      const [value] = requirement.values;
      return value;
    }
    return undefined;
  }
}
