import { z } from "zod";
import { everyResource, verbs } from "../policy/access.ts";
import type { PolicyDefinition, Subject } from "../policy/definition.ts";
import { describeIssue, didYouMean, type KnownMapping, type Step } from "./setting.ts";
import { choice, mappingWith } from "./value-types.ts";
import { parseYamlFile, type YamlMapping } from "./yaml-file.ts";

/** Maximum size of a policy file, in bytes. */
export const maxPolicyBytes = 1024 ** 2;

/**
 * Maximum number of grants: a rule has one for each combination of its resources, verbs, and prefixes or keys. It bounds
 * the memory of a compiled policy.
 */
const maxGrants = 100_000;

/** Maximum number of problems that are reported at once. */
const maxProblems = 20;

/** A policy, or what is wrong with it. */
export type ParsedPolicy =
  | { readonly definition: PolicyDefinition; readonly problems?: undefined }
  | { readonly definition?: undefined; readonly problems: readonly string[] };

/**
 * Parses a policy file. A problem is a sentence that begins with the file, line and key, and says what is accepted. `name`
 * is the file's name in messages.
 */
export function parsePolicy(name: string, content: Uint8Array): ParsedPolicy {
  if (content.byteLength > maxPolicyBytes) {
    const problem = `${name}: has ${content.byteLength} bytes. A policy has at most ${maxPolicyBytes}.`;
    return { problems: [problem] };
  }
  const text = decoded(content);
  if (text === undefined) return { problems: [`${name}: is not UTF-8.`] };
  const { mapping, problems } = parseYamlFile(name, text, "roles and bindings");
  if (problems.length > 0) return { problems: limited(name, problems) };
  if (mapping === undefined) {
    const problem = `${name}: is empty. A policy that allows nothing has roles: [] and bindings: [].`;
    return { problems: [problem] };
  }
  const result = policyFile.safeParse(mapping.values, { reportInput: true });
  if (!result.success) {
    const all = result.error.issues.flatMap((issue) => problemsOf(issue, mapping));
    return { problems: limited(name, all) };
  }
  const definition = definitionOf(result.data, mapping);
  const broken = inconsistencies(definition, mapping);
  return broken.length > 0 ? { problems: limited(name, broken) } : { definition };
}

function decoded(content: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return undefined;
  }
}

function limited(name: string, problems: readonly string[]): readonly string[] {
  if (problems.length <= maxProblems) return problems;
  const more = `${name}: and ${problems.length - maxProblems} more problems.`;
  return [...problems.slice(0, maxProblems), more];
}

function problemsOf(issue: z.core.$ZodIssue, { place }: YamlMapping): readonly string[] {
  const problems = describeIssue(issue, place, mappingAt);
  const isVerb = issue.path.at(-2) === "verbs" && typeof issue.input === "string";
  const hint = isVerb ? didYouMean(String(issue.input), verbs) : "";
  return problems.map((problem) => problem + hint);
}

function definitionOf(
  { roles, bindings }: z.infer<typeof policyFile>,
  { lineOf }: YamlMapping,
): PolicyDefinition {
  return {
    roles: roles.map(({ name, rules }, i) => ({
      name,
      rules: rules.map(({ resources, prefixes = [], keys = [], verbs: allowed }, j) => ({
        ...{ resources, prefixes, keys, verbs: allowed },
        line: lineOf(["roles", i, "rules", j]) ?? 0,
      })),
    })),
    bindings: bindings.map(({ role, subjects }, i) => ({
      ...{ role, subjects },
      line: lineOf(["bindings", i]) ?? 0,
    })),
  };
}

/** What is wrong between values that are valid by themselves. */
function inconsistencies(
  { roles, bindings }: PolicyDefinition,
  { place }: YamlMapping,
): readonly string[] {
  const problems: string[] = [];
  const names = new Set<string>();
  let grants = 0;
  for (const [i, { name, rules }] of roles.entries()) {
    if (names.has(name)) {
      const at = place(["roles", i, "name"]);
      problems.push(`${at}: there is another role ${JSON.stringify(name)}; names must differ.`);
    }
    names.add(name);
    for (const { resources, prefixes, keys, verbs: allowed } of rules) {
      grants += resources.length * allowed.length * (prefixes.length + keys.length);
    }
  }
  if (grants > maxGrants) {
    problems.push(
      `${place(["roles"])}: the rules have ${grants} combinations of a resource, a verb, and a prefix or key. A ` +
        `policy has at most ${maxGrants}. Use wider prefixes, or "*".`,
    );
  }
  for (const [i, { role }] of bindings.entries()) {
    if (names.has(role)) continue;
    const at = place(["bindings", i, "role"]);
    problems.push(`${at}: there is no role ${JSON.stringify(role)}.${didYouMean(role, names)}`);
  }
  return problems;
}

/*
 * The format of a policy file, with what is accepted of each value. docs/policy.md explains it to operators.
 */

/** Maximum length of a name, prefix, key or subject, in UTF-16 code units. */
const maxTextLength = 2_048;

/** Maximum number of elements of a list. */
const maxElements = 10_000;

const notText = "is not text; put it in quotes";

/** Text that is not empty. A message continues a sentence that begins with the value. */
function text(what: string, isValid: (text: string) => boolean): z.ZodType<string> {
  return z
    .string({ error: notText })
    .max(maxTextLength, { error: `is longer than ${maxTextLength} characters` })
    .refine((value) => value.isWellFormed(), { error: "is not valid Unicode" })
    .refine(isValid, { error: `is not ${what}` });
}

function list<T>(element: z.ZodType<T>, example: string): z.ZodType<readonly T[]> {
  return z
    .array(element, { error: `is not a list, such as ${example}` })
    .min(1, { error: "is an empty list" })
    .max(maxElements, { error: `has more than ${maxElements} elements` });
}

const roleName = text("the name of a role: letters, digits and - _ . : /", (value) =>
  /^[\w.:/-]+$/.test(value),
);

const resourceName = text(
  'the name of a resource (lower-case letters, digits and hyphens), or "*" for all',
  (value) => value === everyResource || /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(value),
);

/** `*` and a last path element of `*` stand for what follows them; the definition has the prefix before it. */
const prefix = text(
  'a prefix of keys, such as "team-a/"; "*" is allowed only for all keys, or as the last path element',
  (value) => value !== "" && isBeforeWildcard(value, (before) => !before.includes("*")),
).transform((value) => (isWildcard(value) ? value.slice(0, -1) : value));

const key = text(
  'a key, such as "team-a/settings"; for several keys use prefixes, without "*" in keys',
  (value) => value !== "" && !value.includes("*"),
);

const groupMark = "group:";

const subject = text(
  'a subject: a name, a name that ends with "/*", "group:NAME", or "*" for every identity with a credential',
  (value) => {
    if (value.startsWith(groupMark)) return value !== groupMark && !value.includes("*");
    return value !== "" && isBeforeWildcard(value, (before) => !before.includes("*"));
  },
).transform((value): Subject => {
  if (value === "*") return "everyone";
  if (value.startsWith(groupMark)) return { group: value.slice(groupMark.length) };
  return isWildcard(value) ? { namePrefix: value.slice(0, -1) } : { name: value };
});

function isWildcard(value: string): boolean {
  return value === "*" || value.endsWith("/*");
}

/** Whether the text without its wildcard, if it has one, is valid. */
function isBeforeWildcard(value: string, isValid: (before: string) => boolean): boolean {
  return isValid(isWildcard(value) ? value.slice(0, -1) : value);
}

const everyVerb = "*";

const verb = choice([...verbs, everyVerb]);

const rule = mappingWith({
  resources: list(resourceName, "[pods]"),
  prefixes: list(prefix, '["team-a/"]').optional(),
  keys: list(key, '["team-a/settings"]').optional(),
  verbs: list(verb, "[get, list, watch]").transform((given) =>
    verbs.filter((each) => given.includes(each) || given.includes(everyVerb)),
  ),
});

const role = mappingWith({
  name: roleName,
  rules: list(
    rule.refine(({ prefixes, keys }) => prefixes !== undefined || keys !== undefined, {
      error: 'has neither prefixes nor keys; for all keys write prefixes: ["*"]',
    }),
    "- {resources: [pods], prefixes: [team-a/], verbs: [get]}",
  ),
});

const binding = mappingWith({ role: roleName, subjects: list(subject, '["group:team-a"]') });

/** A policy file's content. */
const policyFile = mappingWith({
  roles: z.array(role, { error: "is not a list of roles" }).max(maxElements),
  bindings: z.array(binding, { error: "is not a list of bindings" }).max(maxElements),
});

/** The part of a policy file at `path`: what it is called, and the keys that it may have. */
function mappingAt(path: readonly Step[]): KnownMapping {
  if (path.length === 0) return { what: "a policy", keys: Object.keys(policyFile.shape) };
  if (path.length > 2) return { what: "a rule", keys: Object.keys(rule.shape) };
  return path[0] === "roles"
    ? { what: "a role", keys: Object.keys(role.shape) }
    : { what: "a binding", keys: Object.keys(binding.shape) };
}
