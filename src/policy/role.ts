import type { Access, AccessScope, Verb } from "./access.ts";
import { everyResource } from "./access.ts";
import type { RoleDefinition } from "./definition.ts";
import type { Rule } from "./scope-set.ts";
import { type GrantedText, ScopeSet } from "./scope-set.ts";

/** What the rules of a role grant with one verb on one resource. */
interface Grants {
  readonly prefixes: GrantedText[];
  readonly keys: GrantedText[];
}

/** Scopes by resource, or `everyResource`. */
type Scopes = ReadonlyMap<string, ScopeSet>;

/** A role, compiled: finds the rule that allows an access without a search through its rules. */
export class Role {
  readonly name: string;
  readonly #scopes: Readonly<Record<Verb, Scopes>>;
  /** Resources with any right, or `everyResource`. */
  readonly #resources: ReadonlySet<string>;

  constructor({ name, rules }: RoleDefinition) {
    this.name = name;
    this.#resources = new Set(rules.flatMap(({ resources }) => resources));
    this.#scopes = {
      get: scopesOf(rules, name, "get"),
      list: scopesOf(rules, name, "list"),
      watch: scopesOf(rules, name, "watch"),
      put: scopesOf(rules, name, "put"),
      delete: scopesOf(rules, name, "delete"),
    };
  }

  /** The rule that allows the whole access; undefined: no rule does. */
  allowing({ verb, resource, scope }: Access): Rule | undefined {
    const scopes = this.#scopes[verb];
    const rule = scopes.get(resource)?.covering(scope);
    return rule ?? scopes.get(everyResource)?.covering(scope);
  }

  /** Whether it grants anything on the resource. */
  concerns(resource: string): boolean {
    return this.#resources.has(resource) || this.#resources.has(everyResource);
  }

  /** Whether it grants anything with this verb on the resource. */
  grants(verb: Verb, resource: string): boolean {
    const scopes = this.#scopes[verb];
    return scopes.has(resource) || scopes.has(everyResource);
  }

  /** The scopes that it grants with this verb on the resource. */
  granted(verb: Verb, resource: string): readonly AccessScope[] {
    const scopes = this.#scopes[verb];
    return [resource, everyResource].flatMap((name) => scopes.get(name)?.scopes ?? []);
  }
}

function scopesOf(rules: RoleDefinition["rules"], role: string, verb: Verb): Scopes {
  const byResource = new Map<string, Grants>();
  for (const [index, { resources, prefixes, keys, verbs, line }] of rules.entries()) {
    if (!verbs.includes(verb)) continue;
    const rule: Rule = { name: `${role}[${index}]`, line };
    for (const resource of resources) {
      const grants = byResource.get(resource) ?? { prefixes: [], keys: [] };
      byResource.set(resource, grants);
      for (const prefix of prefixes) grants.prefixes.push([prefix, rule]);
      for (const key of keys) grants.keys.push([key, rule]);
    }
  }
  const sets = [...byResource].map(
    ([resource, { prefixes, keys }]) => [resource, new ScopeSet(prefixes, keys)] as const,
  );
  return new Map(sets);
}
