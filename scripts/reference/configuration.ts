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
import { bullet, code, paragraph, table } from "./markdown.ts";

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
      `All options of \`watch-fanout serve\`. Each is a flag, an environment variable and a key of the YAML file that ` +
        `${code("--config FILE")} or ${code(configVariable)} names: ${code(flagOf("stall-timeout"))}, ` +
        `${code(variableOf("stall-timeout"))} and ${code("stall-timeout")}. A flag takes precedence over a variable, a ` +
        "variable over the file, and the file over the default.",
    ),
    paragraph(
      "The service does not start with an unknown key, an unknown variable of its prefix or an invalid value: it " +
        "prints every problem with its place and exits. An empty variable counts as not set.",
    ),
    table(["value", "is"], placeholders),
    `\`\`\`yaml\n${exampleFile}\`\`\``,
    ...optionGroups.flatMap(({ heading, names }) => [
      `## ${heading}`,
      names.map(optionBullet).join("\n"),
    ]),
    "## Resources",
    paragraph(
      `An element of ${code(fileKeyOf("resource"))} in the file is the text \`NAME=PREFIX\` or a mapping. A name has ` +
        "at most 63 lower-case letters, digits and hyphens, beginning and ending with a letter or digit.",
    ),
    resourceBullets(),
  ].join("\n\n");
}

/** What the placeholders of values stand for. */
const placeholders = [
  [code("DURATION"), "such as `500ms`, `75s`, `5m` or `1h30m`; at most 24 days"],
  [code("SIZE"), "above 0 in `B`, `KiB`, `MiB` or `GiB`, such as `64MiB`"],
  [code("COUNT"), "a whole number, at least 1; 0 where the option gives it a meaning"],
  [
    code("HOST:PORT"),
    "`127.0.0.1:50051`, `[::1]:50051`, `0.0.0.0:50051` for all interfaces; port 0 is a free one",
  ],
  [code("FILE"), "certificates, authorities and keys are in PEM"],
  [code("[on|off]"), "a flag without a value is on"],
  [code("X[,X...]"), "a list, separated by commas; in the file also a sequence"],
] as const;

function optionBullet(name: OptionName): string {
  const { help, secret, value } = definition(name);
  const term =
    secret === true
      ? `${code(variableOf(name))} (no flag, since other users of a machine can see flags)`
      : code(`${flagOf(name)} ${value}`);
  const notes = [
    withFlags(help),
    ...(fileKeyOf(name) === name ? [] : [`In the file: ${code(fileKeyOf(name))}.`]),
    ...valueNotes(name),
    ...(defaultOf(name) === undefined ? [] : [`Default: ${defaultOf(name)}.`]),
  ];
  return bullet(`${term}: ${notes.join(" ")}`);
}

/** What an option accepts, unless its placeholder or its help says it. */
function valueNotes(name: OptionName): readonly string[] {
  const { help, schema, value, isSwitch } = definition(name);
  if (isSwitch === true) return [];
  const accepted = acceptedBy(schema);
  const [, least] = /^a duration from ([1-9]\w*)/.exec(accepted) ?? [];
  if (least !== undefined) return [`At least ${least}.`];
  // A text with an example is for a message without the help.
  if (accepted === "text" || /such as|at least [01]$/.test(accepted)) return [];
  const words = accepted.match(/\w+/g) ?? [];
  return words.every((word) => help.includes(word)) ? [] : [`${value}: ${accepted}.`];
}

function defaultOf(name: OptionName): string | undefined {
  const { default: value, defaultHelp } = definition(name);
  return defaultHelp ?? (value === undefined ? undefined : code(value));
}

function resourceBullets(): string {
  return Object.entries(schemasOf("resource"))
    .map(([key, schema]) =>
      bullet(`${code(key)}: ${descriptionOf(key, schema)} ${valueNote(schema)}`),
    )
    .join("\n");
}

/** What a key accepts. The page says above the list what a name is. */
function valueNote(schema: z.ZodType): string {
  return `Value: ${acceptedBy(schema).replace(/^(a resource name): .*/s, "$1")}.`;
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
