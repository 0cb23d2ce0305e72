import { everyResource, type PolicyDefinition } from "../../policy/definition.ts";

/**
 * What may not be meant in a valid policy. Each remark is a line number and a sentence. A prefix that does not end with a
 * slash also has the keys whose next path element only begins like it.
 */
export function remarksOn({ roles, bindings }: PolicyDefinition): readonly string[] {
  const bound = new Set(bindings.map(({ role }) => role));
  const remarks: string[] = [];
  for (const { name, rules } of roles) {
    for (const { prefixes, verbs, resources, line } of rules) {
      for (const prefix of prefixes) {
        if (prefix === "" || prefix.endsWith("/")) continue;
        remarks.push(
          `${line}: note: the prefix ${JSON.stringify(prefix)} does not end with "/", so it also has keys such as ` +
            `${JSON.stringify(`${prefix}-2`)}.`,
        );
      }
      if (verbs.includes("delete") && !verbs.includes("get")) {
        remarks.push(
          `${line}: note: delete returns the deleted object with its value, also without get.`,
        );
      }
      if (resources.length > 1 && resources.includes(everyResource)) {
        remarks.push(`${line}: note: "*" has all resources; the other names have no effect.`);
      }
    }
    if (bound.has(name)) continue;
    const line = rules[0]?.line ?? 0;
    remarks.push(`${line}: note: no binding gives the role ${JSON.stringify(name)}.`);
  }
  return remarks;
}
