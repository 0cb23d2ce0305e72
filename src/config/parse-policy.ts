import type { z } from "zod";
import { verbs } from "../policy/access.ts";
import type { PolicyDefinition } from "../policy/definition.ts";
import { nearest } from "./nearest.ts";
import { mappingAt, policyFile } from "./policy-schema.ts";
import { showValue } from "./show-value.ts";
import { parseYamlFile, type YamlMapping } from "./yaml-file.ts";

/** Maximum size of a policy file, in bytes. */
export const maxPolicyBytes = 1024 ** 2;

/**
 * Maximum number of grants: a rule has one for each combination of its resources, verbs, and prefixes or keys. It bounds
 * the memory of a compiled policy.
 */
export const maxGrants = 100_000;

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
  const path = issue.path.filter((step) => typeof step !== "symbol");
  if (issue.code === "unrecognized_keys") {
    const { what, keys } = mappingAt(path);
    return issue.keys.map((key) => {
      const problem = `${what} has no such key. Its keys are ${keys.join(", ")}.`;
      return `${place([...path, key])}: ${problem}${hint(key, keys)}`;
    });
  }
  if (issue.input === undefined) return [`${place(path)}: is missing.`];
  const verbHint =
    path.at(-2) === "verbs" && typeof issue.input === "string" ? hint(issue.input, verbs) : "";
  return [`${place(path)}: ${showValue(issue.input)} ${issue.message}.${verbHint}`];
}

function hint(text: string, names: Iterable<string>): string {
  const meant = nearest(text, names);
  return meant === undefined ? "" : ` Did you mean "${meant}"?`;
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
    problems.push(`${at}: there is no role ${JSON.stringify(role)}.${hint(role, names)}`);
  }
  return problems;
}
