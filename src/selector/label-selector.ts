import type { Attributes } from "./attributes.ts";
import { inCanonicalOrder } from "./canonical-order.ts";
import { LabelMatcher } from "./label-matcher.ts";
import type { LabelRequirement } from "./label-requirement.ts";

/** Up to this number, requirements are checked one by one, which is fastest and takes no memory. */
const fewRequirements = 8;

/** Selects objects by their labels: those that meet all requirements. Without requirements every object matches. */
export class LabelSelector {
  /** Without duplicates, in canonical order. */
  readonly requirements: readonly LabelRequirement[];
  /** Only for many requirements. */
  readonly #matcher: LabelMatcher | undefined;

  constructor(requirements: readonly LabelRequirement[]) {
    this.requirements = inCanonicalOrder(requirements);
    if (this.requirements.length > fewRequirements) {
      this.#matcher = new LabelMatcher(this.requirements);
    }
  }

  /** A canonical text that can be parsed again. Not cached. */
  get canonical(): string {
    return this.requirements.map(({ canonical }) => canonical).join(",");
  }

  /** Estimated memory in bytes. */
  get bytes(): number {
    const matcherBytes = this.#matcher?.bytes ?? 0;
    return this.requirements.reduce((sum, { bytes }) => sum + bytes, matcherBytes);
  }

  /** Estimated cost of matching one object, in requirements. */
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

  /** The only value of `key` in all matching objects; undefined if there is no such value. */
  exactLabel(key: string): string | undefined {
    for (const requirement of this.requirements) {
      if (requirement.key === key && requirement.operator === "=") return requirement.values[0];
    }
    return undefined;
  }
}
