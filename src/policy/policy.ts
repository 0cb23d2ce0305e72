import type { Identity } from "../identity/identity.ts";
import {
  type Access,
  type AccessScope,
  describeScope,
  everyResource,
  type Verb,
  verbs,
} from "./access.ts";
import {
  type BindingDefinition,
  formatSubject,
  type PolicyDefinition,
  type RoleDefinition,
  type Subject,
} from "./definition.ts";

/** A role that an identity has, by the first binding that gives it. */
interface BoundRole {
  readonly role: Role;
  readonly subject: Subject;
  /** The binding's line in the file. */
  readonly line: number;
}

/** Whether an identity may do something, and why, in a sentence for an operator. */
export interface Explanation {
  readonly allowed: boolean;
  readonly why: string;
}

/** Maximum number of names or scopes that an explanation lists. */
const maxListed = 10;

/**
 * A compiled policy. Without a rule that allows it, an access is denied. Immutable: a changed file makes another Policy.
 *
 * A check looks up the identity's roles, which are kept for as long as the identity is in memory, and for each role
 * searches one sorted list. The number of rules and bindings matters only to the logarithm.
 */
export class Policy {
  readonly definition: PolicyDefinition;
  readonly #byName = new Map<string, BoundRole[]>();
  readonly #byNamePrefix = new Map<string, BoundRole[]>();
  readonly #byGroup = new Map<string, BoundRole[]>();
  readonly #ofEveryone: BoundRole[] = [];
  /** The lengths of the prefixes of names. */
  readonly #prefixLengths: readonly number[];
  readonly #ofIdentity = new WeakMap<Identity, readonly BoundRole[]>();

  constructor(definition: PolicyDefinition) {
    this.definition = definition;
    const roles = new Map(definition.roles.map((role) => [role.name, new Role(role)]));
    for (const binding of definition.bindings) {
      const role = roles.get(binding.role);
      if (role !== undefined) this.#bind(role, binding);
    }
    const lengths = [...this.#byNamePrefix.keys()].map(({ length }) => length);
    this.#prefixLengths = [...new Set(lengths)];
  }

  /** The rule that allows the identity the whole access; undefined: it is denied. */
  allowing(identity: Identity, access: Access): Rule | undefined {
    for (const { role } of this.#rolesOf(identity)) {
      const rule = role.allowing(access);
      if (rule !== undefined) return rule;
    }
    return undefined;
  }

  /** Whether the identity has any right on the resource, with any verb and scope. */
  concerns(identity: Identity, resource: string): boolean {
    return this.#rolesOf(identity).some(({ role }) => role.concerns(resource));
  }

  /** Whether the identity may do something with anything of the resource, with one of these verbs. */
  mayAny(identity: Identity, among: readonly Verb[], resource: string): boolean {
    return this.#rolesOf(identity).some(({ role }) =>
      among.some((verb) => role.grants(verb, resource)),
    );
  }

  /** Says which rule and binding allow the access, or what the identity may do instead. Never for the client. */
  explain(identity: Identity, access: Access): Explanation {
    const bound = this.#rolesOf(identity);
    for (const { role, subject, line } of bound) {
      const rule = role.allowing(access);
      if (rule === undefined) continue;
      return {
        allowed: true,
        why:
          `the rule ${rule.name} (line ${rule.line}) allows it, which the binding in line ${line} gives to ` +
          `${JSON.stringify(formatSubject(subject))}`,
      };
    }
    return { allowed: false, why: denial(identity, access, bound) };
  }

  #bind(role: Role, { subjects, line }: BindingDefinition): void {
    for (const subject of subjects) {
      const bound = { role, subject, line };
      if (subject === "everyone") this.#ofEveryone.push(bound);
      else if ("name" in subject) entryOf(this.#byName, subject.name).push(bound);
      else if ("group" in subject) entryOf(this.#byGroup, subject.group).push(bound);
      else entryOf(this.#byNamePrefix, subject.namePrefix).push(bound);
    }
  }

  #rolesOf(identity: Identity): readonly BoundRole[] {
    const known = this.#ofIdentity.get(identity);
    if (known !== undefined) return known;
    const roles = new Map<Role, BoundRole>();
    for (const bound of this.#bindingsOf(identity)) {
      if (!roles.has(bound.role)) roles.set(bound.role, bound);
    }
    const result = [...roles.values()];
    this.#ofIdentity.set(identity, result);
    return result;
  }

  *#bindingsOf({ name, groups, source }: Identity): Iterable<BoundRole> {
    yield* this.#byName.get(name) ?? [];
    // An identity without a credential has only what is granted to its name.
    if (source === "none") return;
    for (const length of this.#prefixLengths) {
      if (name.length > length) yield* this.#byNamePrefix.get(name.slice(0, length)) ?? [];
    }
    for (const group of groups) yield* this.#byGroup.get(group) ?? [];
    yield* this.#ofEveryone;
  }
}

function entryOf(map: Map<string, BoundRole[]>, key: string): BoundRole[] {
  const entry = map.get(key) ?? [];
  map.set(key, entry);
  return entry;
}

function denial(identity: Identity, access: Access, bound: readonly BoundRole[]): string {
  const name = JSON.stringify(identity.name);
  if (bound.length === 0)
    return `no binding has a subject that matches ${name} or one of its groups`;
  const { verb, resource } = access;
  const roles = listed(bound.map(({ role }) => JSON.stringify(role.name)));
  const scopes = bound.flatMap(({ role }) => role.granted(verb, resource));
  if (scopes.length > 0) {
    const granted = listed(scopes.map(describeScope));
    return `no rule allows all of it; the roles of ${name} (${roles}) allow to ${verb} there only ${granted}`;
  }
  const others = verbs.filter((other) =>
    bound.some(({ role }) => role.granted(other, resource).length > 0),
  );
  const rest =
    others.length === 0
      ? `have no rights on the resource ${JSON.stringify(resource)}`
      : `allow only to ${listed(others)} keys of the resource ${JSON.stringify(resource)}`;
  return `the roles of ${name} (${roles}) ${rest}`;
}

function listed(names: readonly string[]): string {
  const more = names.length > maxListed ? ` and ${names.length - maxListed} more` : "";
  return `${names.slice(0, maxListed).join(", ")}${more}`;
}

/** What the rules of a role grant with one verb on one resource. */
interface Grants {
  readonly prefixes: GrantedText[];
  readonly keys: GrantedText[];
}

/** Scopes by resource, or `everyResource`. */
type Scopes = ReadonlyMap<string, ScopeSet>;

/** A role, compiled: finds the rule that allows an access without a search through its rules. */
class Role {
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
