import type { Attributes } from "./attributes.ts";
import { LabelMatcher } from "./label-matcher.ts";
import type { LabelRequirement } from "./label-requirement.ts";
import { Selector } from "./selector.ts";

/** Up to this number, requirements are checked one by one, which is fastest and takes no memory. */
const fewRequirements = 8;

/** Selects objects by their labels. */
export class LabelSelector extends Selector<LabelRequirement> {
  /** Only for many requirements. */
  readonly #matcher: LabelMatcher | undefined;

  constructor(requirements: readonly LabelRequirement[]) {
    super(requirements);
    if (this.requirements.length > fewRequirements) {
      this.#matcher = new LabelMatcher(this.requirements);
    }
  }

  protected get indexBytes(): number {
    return this.#matcher?.bytes ?? 0;
  }

  get cost(): number {
    return this.#matcher === undefined ? this.requirements.length : 2 * fewRequirements;
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
