import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";
import type { LabelRequirement } from "./label-requirement.ts";

/** Picks objects by their labels: those that meet every requirement, so all if there is none. */
export class LabelSelector {
  /** Each once, in canonical order. */
  readonly requirements: readonly LabelRequirement[];

  constructor(requirements: readonly LabelRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
  }

  /** A spelling that all selectors with the same requirements share. Can be parsed again. Made for whoever asks. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, 0);
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
      if (requirement.key === key && requirement.operator === "=") return requirement.values[0];
    }
    return undefined;
  }
}
