import { resolve } from "node:path";
import { Command, CommanderError, Option } from "commander";
import { invalidRequest, messageOf } from "../../base/errors.ts";
import { isToken, maxTokenBytes, tokenRule } from "../../wire/bearer-token.ts";
import { type Context, contextFields, fileFields } from "../contexts/context-file.ts";
import { configOption, contextFile, parsedValue } from "../contexts/use-context.ts";
import { type CommandIo, readAll, reportFailure, tableOptions } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { Table } from "../output/table.ts";
import { addClientOptions, usageError } from "./client-options.ts";
import { yamlText } from "./decoded/yaml.ts";

/** Adds `context list`, `use`, `show`, `set` and `delete`. They need no service. */
export function addContextCommands(program: Command, io: CommandIo): void {
  const context = program
    .command("context")
    .description("Name services and how to call them, in a file; client commands use one of them.");
  addList(context, io);
  addUse(context, io);
  addShow(context, io);
  addSet(context, io);
  addDelete(context, io);
}

/** Runs an action, and turns its error into a message and the exit code. */
async function reported(io: CommandIo, work: () => void | Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (error instanceof CommanderError) throw error;
    reportFailure(io, error);
  }
}

function addList(context: Command, io: CommandIo): void {
  const command = context.command("list").description("List the contexts.");
  command.addOption(configOption()).action(() =>
    reported(io, () => {
      const file = contextFile(command, true);
      const rows = file.names.map((name) => {
        const { fields } = file.context(name);
        const values = ["address", "resource"].map((field) => fields.get(field) ?? "-");
        return [name === file.current ? "*" : "", name, ...values].map(printableText);
      });
      const headings = ["CURRENT", "NAME", "ADDRESS", "RESOURCE"];
      io.stdout.write(new Table(headings, tableOptions(io)).format(rows));
    }),
  );
}

function addUse(context: Command, io: CommandIo): void {
  const command = context
    .command("use")
    .description("Make a context the current one.")
    .argument("<context>", "its name");
  command.addOption(configOption()).action((name: string) =>
    reported(io, () => {
      const file = contextFile(command, true);
      file.use(file.context(name).name);
      file.write();
    }),
  );
}

function addShow(context: Command, io: CommandIo): void {
  const command = context
    .command("show")
    .description("Print a context as YAML, without its token.")
    .argument("[context]", "its name (default: the current one)");
  command.addOption(configOption()).action((given: string | undefined) =>
    reported(io, () => {
      const file = contextFile(command, true);
      const name = given ?? file.current;
      if (name === undefined)
        throw invalidRequest("context", `${file.path} has no current context.`);
      io.stdout.write(yamlText({ name, ...shown(file.context(name)) }));
    }),
  );
}

function shown({ fields }: Context): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...fields].map(([field, text]) => [field, field === "bearer-token" ? "(hidden)" : text]),
  );
}

interface SetOptions {
  readonly bearerTokenStdin?: true;
  readonly unset?: readonly string[];
}

function addSet(context: Command, io: CommandIo): void {
  const command = context
    .command("set")
    .description("Create a context, or change fields of it. The first one becomes the current one.")
    .argument("<context>", "its name");
  const flags = addClientOptions(new Command()).options.filter(({ long }) =>
    contextFields.some((field) => long === `--${field}`),
  );
  // Without their defaults and variables: only what is given here is written.
  for (const { flags: text, description } of flags) {
    command.addOption(new Option(text, description));
  }
  command
    .option("--bearer-token-stdin", "read a token from standard input, and keep it in the file")
    .addOption(
      new Option("--unset <field,...>", "remove these fields").argParser((text) => text.split(",")),
    )
    .addOption(configOption());
  command.action((name: string, options: SetOptions) =>
    reported(io, async () => {
      const fields = new Map<string, string | undefined>();
      for (const field of options.unset ?? []) {
        if (!contextFields.some((known) => known === field)) {
          usageError(command, `--unset ${field}: the fields are ${contextFields.join(", ")}.`);
        }
        fields.set(field, undefined);
      }
      for (const option of flags) {
        const given: unknown = command.getOptionValue(option.attributeName());
        const flag = option.long ?? "";
        const field = flag.slice("--".length);
        if (given === undefined) continue;
        if (typeof given === "string") checkFlag(command, option, given);
        const text = String(given);
        fields.set(field, fileFields.includes(field) ? resolve(text) : text);
      }
      if (options.bearerTokenStdin === true) {
        fields.set("bearer-token", await readToken(io));
        if (!fields.has("bearer-token-file")) fields.set("bearer-token-file", undefined);
      } else if (fields.get("bearer-token-file") !== undefined) {
        fields.set("bearer-token", undefined);
      }
      const file = contextFile(command, false);
      file.set(name, fields);
      file.write();
    }),
  );
}

function checkFlag(command: Command, option: Option, text: string): void {
  try {
    parsedValue(option, text, option.long ?? "");
  } catch (error) {
    usageError(command, messageOf(error));
  }
}

async function readToken({ stdin }: CommandIo): Promise<string> {
  const content = await readAll(stdin, maxTokenBytes);
  const text = content?.toString("utf8").trim() ?? "";
  if (isToken(text)) return text;
  throw invalidRequest("token", `Standard input is not a token: ${tokenRule}.`);
}

function addDelete(context: Command, io: CommandIo): void {
  const command = context
    .command("delete")
    .description("Delete a context.")
    .argument("<context>", "its name");
  command.addOption(configOption()).action((name: string) =>
    reported(io, () => {
      const file = contextFile(command, true);
      file.delete(name);
      file.write();
    }),
  );
}
