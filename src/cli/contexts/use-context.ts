import { type Command, InvalidArgumentError, Option } from "commander";
import { messageOf } from "../../base/errors.ts";
import { refuse } from "../output/command-io.ts";
import { type Context, ContextFile, defaultContextPath } from "./context-file.ts";

interface ContextOptions {
  readonly config?: string;
  readonly context?: string;
  readonly bearerTokenFile?: string;
}

/** The option that names the file of the contexts. Its variable is not that of serve, whose file has other options. */
export function configOption(): Option {
  return new Option(
    "--config <file>",
    "file of the contexts (default: ~/.config/watch-fanout/config.yaml)",
  ).env("WATCH_FANOUT_CLIENT_CONFIG");
}

/** Adds --context and --config. Before the action, the context's fields become the options that are not given. */
export function addContextOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--context <name>", "context to use, instead of the current one of the file").env(
        "WATCH_FANOUT_CONTEXT",
      ),
    )
    .addOption(configOption())
    .hook("preAction", () => useContext(command));
}

/** Reads the file that --config names, or the default one, which may be absent. */
export function contextFile(command: Command, mustExist: boolean): ContextFile {
  const { config = "" } = command.opts<ContextOptions>();
  const path = config === "" ? defaultContextPath(process.env) : config;
  return ContextFile.read(path, mustExist && config !== "");
}

/** Whether the user has given an option here or as a variable. Those of the context are not. */
export function isGiven(command: Command, name: string): boolean {
  const source = command.getOptionValueSource(name);
  return source === "cli" || source === "env";
}

/** Sets the options that are not given from the context. Ends the command with a usage error if that can't be read. */
export function useContext(command: Command): void {
  try {
    const file = contextFile(command, true);
    const name = command.opts<ContextOptions>().context || file.current;
    if (name !== undefined) setOptions(command, file.context(name));
  } catch (error) {
    refuse(command, messageOf(error).split("\n"));
  }
}

function setOptions(command: Command, context: Context): void {
  const hasToken =
    (process.env["WATCH_FANOUT_BEARER_TOKEN"] ?? "") !== "" || isGiven(command, "bearerTokenFile");
  for (const [field, text] of context.fields) {
    if (field.startsWith("bearer-token") && hasToken) continue;
    const option = command.options.find(({ long }) => long === `--${field}`);
    // A token has no flag, as other users of the machine can see flags.
    const name = field === "bearer-token" ? "bearerToken" : option?.attributeName();
    if (name === undefined || isGiven(command, name)) continue;
    command.setOptionValueWithSource(
      name,
      parsedValue(option, text, context.place(field)),
      "config",
    );
  }
}

/** The value of an option that is given as text. */
export function parsedValue(option: Option | undefined, text: string, place: string): unknown {
  if (option === undefined) return text;
  if (option.isBoolean()) return text === "true" ? true : undefined;
  try {
    return option.parseArg === undefined ? text : option.parseArg(text, undefined);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw new Error(`${place}: ${error.message}`);
  }
}
