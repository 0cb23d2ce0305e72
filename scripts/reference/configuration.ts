import type { z } from "zod";
import { configVariable } from "../../src/config/load-config.ts";
import {
  definition,
  fileKeyOf,
  flagOf,
  type OptionName,
  optionGroups,
  variableOf,
} from "../../src/config/options.ts";
import { schemasOf } from "../../src/config/resource-settings.ts";
import { bullet, code, paragraph } from "./markdown.ts";

/** Used in the page, and loaded by its test. */
export const exampleFile = `etcd: [https://etcd-0.example:2379, https://etcd-1.example:2379]
etcd-ca: /etc/watch-fanout/etcd-ca.pem
listen: 0.0.0.0:50051
tls-cert: /etc/watch-fanout/tls.crt
tls-key: /etc/watch-fanout/tls.key
log-format: json
resources:
  - services=/services/
  - name: pods
    prefix: /pods/
    codec: json
    fields: [spec.nodeName]
    indexes: [spec.nodeName]
`;

/** The reference of the options of \`serve\`, as Markdown. */
export function configurationPage(): string {
  return [
    "# Configuration",
    paragraph(
      `All options of \`watch-fanout serve\`. Each can be given as a flag, as an environment variable and as a key of ` +
        `a YAML file, which ${code("--config FILE")} or ${code(configVariable)} names: the option ${code("stall-timeout")} ` +
        `is ${code(flagOf("stall-timeout"))}, ${code(variableOf("stall-timeout"))} and ${code("stall-timeout")}. A flag ` +
        "takes precedence over a variable, a variable over the file, and the file over the default.",
    ),
    paragraph(
      "The service does not start with an unknown key, an unknown variable of its prefix or an invalid value: it " +
        "prints every problem with its place and exits. An empty variable counts as not set. Unless a list is meant, " +
        "the last of several equal flags counts.",
    ),
    `\`\`\`yaml\n${exampleFile}\`\`\``,
    ...optionGroups.flatMap(({ heading, names }) => [`## ${heading}`, ...names.map(optionSection)]),
    "## Resources",
    paragraph(
      `An element of ${code(fileKeyOf("resource"))} in the file is either the text \`NAME=PREFIX\` or a mapping:`,
    ),
    ...keyBullets("resource"),
    paragraph(`The mapping ${code("event-window")} of a resource:`),
    ...keyBullets("event-window"),
  ].join("\n\n");
}

function optionSection(name: OptionName): string {
  const { help, list, secret, schema, value } = definition(name);
  const flag =
    secret === true
      ? `none, since other users of a machine can see flags; the variable is ${code(variableOf(name))}`
      : code(`${flagOf(name)} ${value}`);
  const several = { commas: "separated by commas", repeated: "each in a flag of its own" };
  const file = fileKeyOf(name) === name ? [] : [`File: ${code(fileKeyOf(name))}`];
  const accepted = value === "FILE" ? undefined : acceptedBy(schema);
  const values = [
    ...(accepted === undefined || accepted === "text" || accepted === value ? [] : [accepted]),
    ...(list === undefined ? [] : [`a list, ${several[list]}`]),
  ];
  const facts = [
    `Flag: ${flag}`,
    ...file,
    ...(values.length === 0 ? [] : [`Value: ${values.join("; ")}`]),
    ...(defaultOf(name) === undefined ? [] : [`Default: ${defaultOf(name)}`]),
  ];
  return [`### ${name}`, paragraph(withFlags(help)), facts.map(bullet).join("\n")].join("\n\n");
}

function defaultOf(name: OptionName): string | undefined {
  const { default: value, defaultHelp } = definition(name);
  return defaultHelp ?? (value === undefined ? undefined : code(value));
}

function keyBullets(owner: "resource" | "event-window"): readonly string[] {
  const schemas = Object.entries(schemasOf(owner));
  return [
    schemas
      .map(([key, schema]) =>
        bullet(`${code(key)}: ${descriptionOf(key, schema)} ${valueNote(schema)}`),
      )
      .join("\n"),
  ];
}

function valueNote(schema: z.ZodType): string {
  return `Value: ${acceptedBy(schema)}.`;
}

function descriptionOf(key: string, schema: z.ZodType): string {
  if (schema.description === undefined) throw new Error(`${key} has no description`);
  return schema.description;
}

/** Flags within a sentence are code. */
function withFlags(sentence: string): string {
  return sentence.replaceAll(/--[a-z]+(?:-[a-z]+)*/g, code);
}

/** What a schema accepts, in the words of its own error message: "is not a size above 0 …". */
function acceptedBy(schema: z.ZodType): string {
  // No option but free text accepts a control character.
  const { success, error } = schema.safeParse("\u0000");
  if (success) return "text";
  const [issue] = error.issues;
  const accepted = /^is not (.+)$/s.exec(issue?.message ?? "")?.[1];
  if (accepted === undefined) throw new Error(`no value is described by ${String(issue?.message)}`);
  return withFlags(accepted);
}
