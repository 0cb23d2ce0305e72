import { parsePolicy } from "../../src/config/parse-policy.ts";
import { Policy } from "../../src/policy/policy.ts";

/** The policy of a file's text. Throws its problems. */
export function policyOf(yaml: string): Policy {
  const { definition, problems } = parsePolicy("policy.yaml", Buffer.from(yaml));
  if (definition === undefined) throw new Error(problems.join("\n"));
  return new Policy(definition);
}

/** The problems of a file's content; empty if it is accepted. */
export function problemsOf(content: string | Uint8Array): readonly string[] {
  return parsePolicy("policy.yaml", Buffer.from(content)).problems ?? [];
}
