import type { AccessScope } from "./access.ts";

/** Identifies a rule of a policy. */
export interface Rule {
  /** `ROLE[INDEX]`, with the rule's index in its role, from 0. */
  readonly name: string;
  /** Its line in the file, from 1. */
  readonly line: number;
}

/** A key or a prefix, and the rule that grants it. */
export type GrantedText = readonly [text: string, rule: Rule];

/**
 * Keys and prefixes, each with the rule that grants it. Finds the grant that a scope is inside of in O(log prefixes).
 *
 * The prefixes are sorted, and none begins with another: a wider one makes a narrower one superfluous. So the prefix of
 * a text, if there is one, is the last that is not after the text: anything between the two would begin with it.
 */
export class ScopeSet {
  readonly #prefixes: readonly string[];
  readonly #rules: readonly Rule[];
  readonly #keys: ReadonlyMap<string, Rule>;

  /** Of grants of the same prefix or key the first counts. */
  constructor(prefixes: readonly GrantedText[], keys: readonly GrantedText[]) {
    // Sorting is stable, so the first of equal prefixes stays the first.
    const sorted = [...prefixes].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
    const kept: GrantedText[] = [];
    for (const entry of sorted) {
      const last = kept.at(-1)?.[0];
      if (last === undefined || !entry[0].startsWith(last)) kept.push(entry);
    }
    this.#prefixes = kept.map(([prefix]) => prefix);
    this.#rules = kept.map(([, rule]) => rule);
    this.#keys = new Map([...keys].reverse());
  }

  /** The rule of a grant that has the whole scope; undefined: there is no such grant. */
  covering(scope: AccessScope): Rule | undefined {
    if (!("key" in scope)) return this.#prefixOf(scope.prefix);
    return this.#prefixOf(scope.key) ?? this.#keys.get(scope.key);
  }

  /** The granted scopes, the prefixes first. */
  get scopes(): readonly AccessScope[] {
    const prefixes = this.#prefixes.map((prefix) => ({ prefix }));
    return [...prefixes, ...[...this.#keys.keys()].reverse().map((key) => ({ key }))];
  }

  #prefixOf(text: string): Rule | undefined {
    let low = 0;
    let high = this.#prefixes.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#prefixes[middle] ?? "") <= text) low = middle + 1;
      else high = middle;
    }
    const candidate = this.#prefixes[low - 1];
    if (candidate === undefined || !text.startsWith(candidate)) return undefined;
    return this.#rules[low - 1];
  }
}
