import { z } from "zod";
import { everyResource, verbs } from "../policy/access.ts";
import type { Subject } from "../policy/definition.ts";
import { choice } from "./value-types.ts";

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

const ruleKeys = {
  resources: list(resourceName, "[pods]"),
  prefixes: list(prefix, '["team-a/"]').optional(),
  keys: list(key, '["team-a/settings"]').optional(),
  verbs: list(verb, "[get, list, watch]").transform((given) =>
    verbs.filter((each) => given.includes(each) || given.includes(everyVerb)),
  ),
};

const rule = z
  .strictObject(ruleKeys, { error: unlessUnknownKey(ruleKeys) })
  .refine(({ prefixes, keys }) => prefixes !== undefined || keys !== undefined, {
    error: 'has neither prefixes nor keys; for all keys write prefixes: ["*"]',
  });

const roleKeys = {
  name: roleName,
  rules: list(rule, "- {resources: [pods], prefixes: [team-a/], verbs: [get]}"),
};

const role = z.strictObject(roleKeys, { error: unlessUnknownKey(roleKeys) });

const bindingKeys = { role: roleName, subjects: list(subject, '["group:team-a"]') };

const binding = z.strictObject(bindingKeys, { error: unlessUnknownKey(bindingKeys) });

const policyKeys = {
  roles: z.array(role, { error: "is not a list of roles" }).max(maxElements),
  bindings: z.array(binding, { error: "is not a list of bindings" }).max(maxElements),
};

/** A policy file's content. */
export const policyFile = z.strictObject(policyKeys, { error: unlessUnknownKey(policyKeys) });

/** The part of a policy file at `path`: what it is called, and the keys that it may have. */
export function mappingAt(path: readonly unknown[]): {
  readonly what: string;
  readonly keys: readonly string[];
} {
  if (path.length === 0) return { what: "a policy", keys: Object.keys(policyKeys) };
  if (path.length > 2) return { what: "a rule", keys: Object.keys(ruleKeys) };
  return path[0] === "roles"
    ? { what: "a role", keys: Object.keys(roleKeys) }
    : { what: "a binding", keys: Object.keys(bindingKeys) };
}

/** Unknown keys are reported one by one; other issues of a mapping have this message. */
function unlessUnknownKey(shape: object) {
  const message = `is not a mapping with ${Object.keys(shape).join(", ")}`;
  return (issue: { readonly code?: string | undefined }): string | undefined =>
    issue.code === "unrecognized_keys" ? undefined : message;
}
