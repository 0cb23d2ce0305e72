import { readFileSync } from "node:fs";
import { Argument, type Command, Option } from "commander";
import { messageOf } from "../../base/errors.ts";
import { variableOf } from "../../config/options.ts";
import { parsePolicy } from "../../config/parse-policy.ts";
import { anonymous, type Identity } from "../../identity/identity.ts";
import {
  type Access,
  describeAccess,
  everyResource,
  type Verb,
  verbs,
} from "../../policy/access.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { Policy } from "../../policy/policy.ts";
import { type CommandIo, exitCodes, processIo, refuse } from "../output/command-io.ts";
import { printableText, quantity } from "../output/printable.ts";

/** Maximum number of notes that are printed. */
const maxRemarks = 20;

const helpOfCan = `
Exit codes: 0 if it is allowed, ${exitCodes.denied} if it is denied, ${exitCodes.usage} if the policy or an argument is invalid.

Examples:
  watch-fanout policy can spiffe://corp/ns/payments/sa/app list pods payments/ --policy policy.yaml
  watch-fanout policy can ann put pods payments/1 --group payments-oncall --policy policy.yaml
  watch-fanout policy can anonymous get pods motd --policy policy.yaml
`;

interface CanOptions {
  readonly group: readonly string[];
  readonly key?: true;
  readonly policy: string;
}

/** Adds `policy check` and `policy can`, for operators: they read a policy file, and need no service. */
export function addPolicyCommands(program: Command, io: CommandIo = processIo): void {
  const policy = program.command("policy").description("Check a policy, and ask what it allows.");
  addCheck(policy, io);
  addCan(policy, io);
}

function addCheck(policy: Command, io: CommandIo): void {
  const command = policy
    .command("check")
    .description("Check a policy file as the service does, and print what is wrong, with its line.")
    .argument("<file>", "the policy file");
  command.action((file: string) => {
    const definition = readPolicy(command, file);
    const { roles, bindings } = definition;
    const rules = roles.reduce((sum, role) => sum + role.rules.length, 0);
    const counts = [
      quantity(roles.length, "role"),
      quantity(rules, "rule"),
      quantity(bindings.length, "binding"),
    ];
    const all = remarksOn(definition).map((remark) => `${file}:${remark}`);
    const more = all.length - maxRemarks;
    const remarks = more > 0 ? [...all.slice(0, maxRemarks), `and ${more} more notes`] : all;
    const lines = [...remarks, `${file} is a valid policy: ${counts.join(", ")}.`];
    io.stdout.write(lines.map((line) => `${printableText(line)}\n`).join(""));
  });
}

function addCan(policy: Command, io: CommandIo): void {
  const command = policy
    .command("can")
    .description("Say whether a policy allows an identity something, and by which rule.")
    .argument("<identity>", 'the name of the identity; "anonymous": a caller without a credential')
    .addArgument(new Argument("<verb>", "what it wants to do").choices(verbs))
    .argument("<resource>", "the name of the resource")
    .argument(
      "[prefix]",
      "for list and watch the prefix of the keys, default all keys; otherwise the key",
    )
    .option("--group <NAME>", "a group of the identity (repeatable)", collected, [])
    .option("--key", "the prefix is one key, for watch")
    .addOption(
      new Option("--policy <FILE>", "the policy file")
        .env(variableOf("policy"))
        .makeOptionMandatory(),
    )
    .addHelpText("after", helpOfCan);
  command.action(
    (name: string, verb: Verb, resource: string, prefix: string = "", options: CanOptions) => {
      const access = accessOf(command, verb, resource, prefix, options.key === true);
      const { allowed, why } = new Policy(readPolicy(command, options.policy)).explain(
        identityOf(name, options.group),
        access,
      );
      const decision = `${allowed ? "allowed" : "denied"}: ${name} ${allowed ? "may" : "may not"} ${describeAccess(access)}`;
      io.stdout.write(`${printableText(`${decision}: ${why}.`)}\n`);
      io.exitWith(allowed ? exitCodes.done : exitCodes.denied);
    },
  );
}

function accessOf(
  command: Command,
  verb: Verb,
  resource: string,
  text: string,
  isKey: boolean,
): Access {
  if (isKey && verb === "list") command.error("error: --key is not for list, which has a prefix");
  const ofKey = isKey || (verb !== "list" && verb !== "watch");
  // Without a key the question is about all of them.
  return { verb, resource, scope: ofKey && text !== "" ? { key: text } : { prefix: text } };
}

function identityOf(name: string, groups: readonly string[]): Identity {
  if (name === anonymous.name) return anonymous;
  return { name, groups, source: "token", expiresAt: undefined };
}

function readPolicy(command: Command, file: string): PolicyDefinition {
  let content: Buffer;
  try {
    content = readFileSync(file);
  } catch (error) {
    return refuse(command, [`${JSON.stringify(file)} can't be read: ${messageOf(error)}.`]);
  }
  const { definition, problems } = parsePolicy(file, content);
  return definition ?? refuse(command, problems);
}

function collected(value: string, before: readonly string[]): readonly string[] {
  return [...before, value];
}

/**
 * What may not be meant in a valid policy. Each remark is a line number and a sentence. A prefix that does not end with a
 * slash also has the keys whose next path element only begins like it.
 */
function remarksOn({ roles, bindings }: PolicyDefinition): readonly string[] {
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
