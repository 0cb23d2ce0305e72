import type { Attributes } from "./attributes.ts";
import { compareInt64 } from "./int64.ts";
import type { LabelRequirement } from "./label-requirement.ts";
import { Selector } from "./selector.ts";
import { includesText, lowerBound, sortedTexts } from "./sorted-texts.ts";

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
}

/** Estimated memory of a rule in bytes, without the texts, which belong to the requirements. */
const ruleBytes = 120;
/** Memory of a text's place in an array, in bytes. */
const placeBytes = 8;

/**
 * Matches labels against many requirements. Checked one by one, a thousand requirements cost as much as a thousand
 * selectors. Here the requirements on one label are merged, and only the labels of the object are looked up. So the
 * cost depends on the object's labels and not on the number of requirements.
 */
class LabelMatcher {
  /** Rules of the labels that an object must have. */
  readonly #required: readonly LabelRule[];
  /** Rules of the labels that an object may lack, by key in the order of `#optionalKeys`. */
  readonly #optional: readonly LabelRule[];
  readonly #optionalKeys: readonly string[];

  constructor(requirements: readonly LabelRequirement[]) {
    const byKey = Map.groupBy(requirements, ({ key }) => key);
    const rules = sortedTexts([...byKey.keys()]).map(
      (key) => new LabelRule(key, byKey.get(key) ?? []),
    );
    this.#required = rules.filter((rule) => rule.isRequired);
    this.#optional = rules.filter((rule) => !rule.isRequired);
    this.#optionalKeys = this.#optional.map(({ key }) => key);
  }

  /** Estimated memory in bytes. */
  get bytes(): number {
    let bytes = placeBytes * this.#optionalKeys.length;
    for (const rules of [this.#required, this.#optional]) {
      for (const rule of rules) bytes += rule.bytes;
    }
    return bytes;
  }

  matches(labels: ReadonlyMap<string, string>): boolean {
    if (this.#required.length > labels.size) return false;
    for (const rule of this.#required) {
      const value = labels.get(rule.key);
      if (value === undefined || !rule.allows(value)) return false;
    }
    if (this.#optional.length === 0) return true;
    for (const [key, value] of labels) {
      const rule = this.#optional[lowerBound(this.#optionalKeys, key)];
      if (rule?.key === key && !rule.allows(value)) return false;
    }
    return true;
  }
}

/** All requirements on one label. */
class LabelRule {
  readonly key: string;
  /** Whether an object must have the label. */
  readonly isRequired: boolean;
  /** Whether no object may have the label. If it is required, too, nothing matches. */
  readonly #isForbidden: boolean;
  /** The allowed values, sorted; undefined: all. */
  readonly #oneOf: readonly string[] | undefined;
  /** The forbidden values, sorted. */
  readonly #noneOf: readonly string[];
  readonly #above: string | undefined;
  readonly #below: string | undefined;

  constructor(key: string, requirements: readonly LabelRequirement[]) {
    this.key = key;
    let oneOf: readonly string[] | undefined;
    const noneOf: (readonly string[])[] = [];
    let above: string | undefined;
    let below: string | undefined;
    for (const { operator, values } of requirements) {
      const [bound = ""] = values;
      if (operator === "=" || operator === "in") {
        oneOf = oneOf === undefined ? values : oneOf.filter((value) => includesText(values, value));
      } else if (operator === "!=" || operator === "notin") {
        noneOf.push(values);
      } else if (operator === ">") {
        if (above === undefined || compareInt64(bound, above) > 0) above = bound;
      } else if (operator === "<") {
        if (below === undefined || compareInt64(bound, below) < 0) below = bound;
      }
    }
    this.isRequired = requirements.some(({ operator }) => presenceRequired.has(operator));
    this.#isForbidden = requirements.some(({ operator }) => operator === "absent");
    this.#oneOf = oneOf;
    const [first = [], ...others] = noneOf;
    this.#noneOf = others.length === 0 ? first : sortedTexts(noneOf.flat());
    this.#above = above;
    this.#below = below;
  }

  get bytes(): number {
    return ruleBytes + placeBytes * ((this.#oneOf?.length ?? 0) + this.#noneOf.length);
  }

  /** Whether the label, which is present, may have this value. */
  allows(value: string): boolean {
    return (
      !this.#isForbidden &&
      (this.#oneOf === undefined || includesText(this.#oneOf, value)) &&
      !includesText(this.#noneOf, value) &&
      (this.#above === undefined || compareInt64(value, this.#above) > 0) &&
      (this.#below === undefined || compareInt64(value, this.#below) < 0)
    );
  }
}

/** An absent label does not meet these. */
const presenceRequired: ReadonlySet<LabelRequirement["operator"]> = new Set([
  "=",
  "in",
  "exists",
  ">",
  "<",
]);
