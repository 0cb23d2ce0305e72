import { Command, type Option } from "commander";
import { addClientCommands } from "../../src/cli/client/client-commands.ts";
import { contextFields } from "../../src/cli/contexts/context-file.ts";
import { addBackupCommand } from "../../src/cli/data/backup-command.ts";
import { addRestoreCommand } from "../../src/cli/data/restore-command.ts";
import { exitCodeMeanings, exitCodes } from "../../src/cli/output/command-io.ts";
import { addPolicyCommands } from "../../src/cli/policy/policy-commands.ts";
import { addTokenCommands } from "../../src/cli/token.ts";
import { addTop } from "../../src/cli/top/top.ts";
import { bullet, code, paragraph, table } from "./markdown.ts";

/** The reference of the commands that talk to a service or to nothing, as Markdown. */
export function commandsPage(): string {
  const program = new Command("watch-fanout");
  addClientCommands(program);
  addTop(program);
  addBackupCommand(program);
  addRestoreCommand(program);
  addPolicyCommands(program);
  addTokenCommands(program);
  const commands = program
    .createHelp()
    .visibleCommands(program)
    .flatMap((command) => (command.commands.length > 0 ? command.commands : [command]));
  const shared = commonOptions(program.commands);
  const repeated = repeatedOptions(commands, shared);
  return [
    "# Commands",
    paragraph(
      "`watch-fanout serve`, `config check` and `etcd-proxy` take the options of [configuration](configuration.md); " +
        "`etcd-proxy` has the flags of etcd grpc-proxy beside them ([moving over](../from-grpc-proxy.md)). " +
        "These are the others. `--help` behind any command shows the same.",
    ),
    "## Exit codes",
    table(
      ["code", "meaning"],
      Object.entries(exitCodes).map(([name, value]) => [
        String(value),
        exitCodeMeanings[name as keyof typeof exitCodes],
      ]),
    ),
    paragraph(
      "`policy can` exits with 0 if it is allowed and 6 if it is denied, `health` with 0 if the service serves. " +
        "`serve` exits with 0 after SIGTERM or SIGINT, 2 for an invalid configuration, and 1 if it can't continue.",
    ),
    "## Options of all commands that call a service",
    shared.map(optionBullet).join("\n"),
    "## Contexts",
    paragraph(
      "`watch-fanout context set` names a service and how to call it, in `~/.config/watch-fanout/config.yaml` (or below " +
        "`XDG_CONFIG_HOME`; `--config` names another file). The commands that call a service use the current context, or that of " +
        "`--context`. A flag takes precedence over a variable, a variable over the context, the context over the default. A " +
        `context has these fields, as the flags of the same names: ${contextFields.map(code).join(", ")}; \`bearer-token\` has no ` +
        "flag. The file is written at once, readable by its owner only; one with a token that others may read is refused, and " +
        "so is a field that is not known.",
    ),
    "## Completion",
    paragraph(
      "`source <(watch-fanout completion bash)`, the same with `zsh`, or `watch-fanout completion fish | source` complete " +
        "commands, flags and their values; names of resources and keys come from the service, at most 100 within a second.",
    ),
    "## Decoded output",
    paragraph(
      "`-o yaml`, `-o jsonpath=TEMPLATE` and `-o columns=HEADING:PATH,...` show values decoded, in kubectl's dialect of " +
        'templates and paths: `{.items[*].key}`, `{range .items[*]}{.key}{"\\t"}{.value.spec.node}{"\\n"}{end}`. A document has ' +
        "`key`, `create_revision`, `mod_revision`, `version`, `lease` and `value`; a list has `revision`, `history_id` and `items`; a " +
        "change of `watch` or `history` is the document of its object with `type`, and `previous`. JSON is decoded " +
        "for resources with that codec, and objects and lists for those without a codec; protobuf with `--descriptors` and " +
        "`--message`. A value that is not decoded is text, or base64 in `value_base64`. Text is exact in a pipe, and escaped on a " +
        "terminal.",
    ),
    "## Export and import",
    paragraph(
      "`watch-fanout export -r pods -r services > file` writes lines of JSON: a header, the objects, and a footer with their " +
        "number. All resources of one store are read at one revision. " +
        "Values are text, or base64 if they are not UTF-8. `watch-fanout import file` refuses a file that is cut off or changed " +
        "in its order, then compares it with the service and writes what differs, each object only over the revision that was " +
        "compared: repeat it after a failure. Leases and revisions are not restored. Both hold one page in memory.",
    ),
    "## Transactions",
    paragraph(
      "`watch-fanout txn` takes its words as arguments, which the shell quotes, or from standard input, divided by spaces and " +
        'line ends, where `"..."` is a JSON string. In any order: `if KEY exists`, `absent`, `mod_revision N`, `create_revision N` ' +
        "or `value VALUE`; `put KEY VALUE`, with `lease ID` or `ttl DURATION` behind it; `delete KEY`; and `in RESOURCE`, the " +
        "resource of what follows. Exit code 0: all conditions held; 4: one did not, and nothing was written. " +
        'An example: `watch-fanout txn if a mod_revision 12 put a "$VALUE" delete b`.',
    ),
    "## Locks and elections",
    paragraph(
      "`watch-fanout lock job -- backup --full` runs a command while it holds a lock, and exits with its code, or 128 and the " +
        "number of the signal that ended it. The command gets `WATCH_FANOUT_FENCING_TOKEN`, which is higher than that of each " +
        "holder before, and `WATCH_FANOUT_LOCK_KEY`: the condition `if KEY create_revision TOKEN` of a transaction holds only " +
        "while the lock is held. SIGINT and SIGTERM become SIGTERM to the command, a second one SIGKILL. When the lock is lost, " +
        "the command gets SIGTERM, SIGKILL 5 s later, and the exit code is 1. What the command has started itself gets no signal.",
    ),
    "## Bench",
    paragraph(
      "`watch-fanout bench watch`, `list` and `put` measure a running service. They write at most 1,000 objects below a prefix " +
        "of their own, `watch-fanout-bench-` and random digits, and delete them at the end, also after an interrupt. The load is " +
        "real: not for a service that others need.",
    ),
    "## Options of several commands",
    paragraph("The commands below name which of these they have."),
    repeated.map(optionBullet).join("\n"),
    ...commands.map((command) => commandSection(command, shared, repeated)),
  ].join("\n\n");
}

/** The options of all commands that call a service, as the first of them has them. */
function commonOptions(commands: readonly Command[]): readonly Option[] {
  const [get] = commands;
  const calling = commands.filter(({ options }) =>
    options.some(({ long }) => long === "--timeout"),
  );
  return (get?.options ?? []).filter(({ flags }) =>
    calling.every(({ options }) => options.some((other) => other.flags === flags)),
  );
}

/** The options of more than one command, described alike, without the common ones. */
function repeatedOptions(
  commands: readonly Command[],
  shared: readonly Option[],
): readonly Option[] {
  const all = commands.flatMap(({ options }) => options);
  return all.filter(
    (option, i) =>
      !hasSame(shared, option) &&
      !hasSame(all.slice(0, i), option) &&
      hasSame(all.slice(i + 1), option),
  );
}

function hasSame(options: readonly Option[], { flags, description }: Option): boolean {
  return options.some((other) => other.flags === flags && other.description === description);
}

function commandSection(
  command: Command,
  shared: readonly Option[],
  repeated: readonly Option[],
): string {
  const { parent } = command;
  const group = parent === null || parent.name() === "watch-fanout" ? "" : `${parent.name()} `;
  const own = command.options.filter(
    (option) => shared.every(({ flags }) => flags !== option.flags) && !hasSame(repeated, option),
  );
  const also = command.options
    .filter((option) => hasSame(repeated, option))
    .map(({ flags }) => code(flags.replace(/^-\w, /, "").replace(/ .*/, "")));
  const usage = command.usage().replace(/^\[options\] ?/, "");
  const name = `watch-fanout ${group}${command.name()} ${usage}`.trim();
  return [
    `### ${group}${command.name()}`,
    paragraph(
      `${code(name)}: ${command.description()}${also.length === 0 ? "" : ` Also ${also.join(", ")}.`}`,
    ),
    ...(own.length === 0 ? [] : [own.map(optionBullet).join("\n")]),
  ].join("\n\n");
}

function optionBullet({ flags, description, envVar, defaultValue, ...option }: Option): string {
  const { defaultValueDescription, argChoices } = option;
  const value = defaultValueDescription ?? String(defaultValue ?? "");
  const notes = [
    argChoices === undefined ? "" : ` One of ${argChoices.map(code).join(", ")}.`,
    value === "" ? "" : ` Default: ${code(value)}.`,
    envVar === undefined ? "" : ` Variable: ${code(envVar)}.`,
  ];
  const text = description === "" ? "" : ` ${description}.`;
  return bullet(`${code(flags)}:${text}${notes.join("")}`);
}
