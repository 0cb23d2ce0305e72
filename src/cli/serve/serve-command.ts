import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import type { Config } from "../../config/config.ts";
import { ConfigError } from "../../config/config-error.ts";
import { loadConfig } from "../../config/load-config.ts";
import { definition, flagOf, type OptionName, optionNames } from "../../config/options.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { printableText } from "../output/printable.ts";

const configOption = collecting(
  "config",
  "FILE",
  "A YAML file with any of these options, by their names without the dashes (resources: is a list " +
    "of name, prefix, and what else each has: see the README).",
);

const helpFooter = `
Every option can also be given as an environment variable, --etcd-ca as WATCH_FANOUT_ETCD_CA, and in
the file, as etcd-ca. A flag wins over a variable, a variable over the file. The etcd password has no
flag: give WATCH_FANOUT_ETCD_PASSWORD, etcd-password in the file, or --etcd-password-file.

If etcd can't be reached the service stays up, is not ready (/readyz says why) and keeps trying.
SIGTERM and SIGINT end it gracefully, a second one at once.

Examples:
  watch-fanout serve
  watch-fanout serve --etcd http://127.0.0.1:2379 --resource services=/services/
`;

/** Adds `serve`, with a flag for every option of the configuration. */
export function addServeCommand(program: Command): void {
  const flags = new Map<string, Option>([["config", configOption]]);
  for (const name of optionNames) {
    const { secret, value } = definition(name);
    if (secret !== true) flags.set(name, collecting(name, value, helpOf(name)));
  }
  const command = program
    .command("serve")
    .description("Serve resources of etcd, or of an embedded store, until told to stop.")
    .addHelpText("after", helpFooter);
  for (const option of flags.values()) command.addOption(option);
  command.action(async () => {
    const config = readConfig(command, flags);
    // Loaded only here: the client commands start faster without the server.
    const { serve } = await import("./serve.ts");
    await serve(config);
  });
}

/** A flag that keeps every value it is given, in order. */
function collecting(name: string, value: string, help: string): Option {
  return new Option(`${flagOf(name)} <${value}>`, help).argParser(
    (text: string, before: readonly string[] = []) => [...before, text],
  );
}

function helpOf(name: OptionName): string {
  const { help, default: value, defaultHelp = value } = definition(name);
  return defaultHelp === undefined ? help : `${help} (default: ${defaultHelp})`;
}

function readConfig(command: Command, options: ReadonlyMap<string, Option>): Config {
  const flags: Record<string, readonly string[] | undefined> = {};
  for (const [name, option] of options) {
    flags[name] = command.getOptionValue(option.attributeName());
  }
  try {
    return loadConfig({ flags, env: process.env, readFile: (path) => readFileSync(path) });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const lines = error.problems.map((problem) => `error: ${printableText(problem)}`);
    return command.error(lines.join("\n"), { exitCode: exitCodes.usage });
  }
}
