import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";
import { LabelMatcher } from "./label-matcher.ts";
import type { LabelRequirement } from "./label-requirement.ts";

/** Up to so many requirements an object is held against one by one, which is fastest and takes no memory. */
const fewRequirements = 8;

/** Picks objects by their labels: those that meet every requirement, so all if there is none. */
export class LabelSelector {
  /** Each once, in canonical order. */
  readonly requirements: readonly LabelRequirement[];
  /** Where there are many. */
  readonly #matcher: LabelMatcher | undefined;

  constructor(requirements: readonly LabelRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    if (this.requirements.length > fewRequirements) {
      this.#matcher = new LabelMatcher(this.requirements);
    }
  }

  /** A spelling that all selectors with the same requirements share. Can be parsed again. Made for whoever asks. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** What it takes to keep it, in bytes: an estimate. */
  get bytes(): number {
    const matcherBytes = this.#matcher?.bytes ?? 0;
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, matcherBytes);
  }

  /** About what it costs to match an object, in requirements that are held against it one by one. */
  get cost(): number {
    return this.#matcher === undefined ? this.requirements.length : 2 * fewRequirements;
  }

  /** Whether every object matches, whatever its labels. */
  get empty(): boolean {
    return this.requirements.length === 0;
  }

  matches(attributes: Attributes): boolean {
    if (this.#matcher !== undefined) return this.#matcher.matches(attributes.labels);
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
