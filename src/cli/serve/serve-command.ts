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
  "<FILE>",
  "YAML file with any of these options, by their names without the leading dashes. resources: is a list " +
    "of mappings with name, prefix and more: see docs/configuration.md.",
);

const helpFooter = `
Every option is also an environment variable (--etcd-ca is WATCH_FANOUT_ETCD_CA) and a key of the file
(etcd-ca). A flag takes precedence over a variable, a variable over the file. The etcd password has no
flag: use WATCH_FANOUT_ETCD_PASSWORD, etcd-password in the file, or --etcd-password-file.

While etcd, or the upstream of a relay, is unreachable the service runs, is not ready (/readyz has the reason) and retries.
SIGTERM and SIGINT shut it down gracefully. A second signal ends it at once.

Examples:
  watch-fanout serve
  watch-fanout serve --etcd http://127.0.0.1:2379 --resource services=/services/
  watch-fanout serve --upstream 127.0.0.1:50051 --listen 127.0.0.1:50052 --admin 127.0.0.1:8082
`;

/** Adds `serve`, with a flag for every option of the configuration. */
export function addServeCommand(program: Command): void {
  const flags = new Map<string, Option>([["config", configOption]]);
  for (const name of optionNames) {
    const { secret, value, isSwitch = false } = definition(name);
    if (secret === true) continue;
    flags.set(name, collecting(name, isSwitch ? value : `<${value}>`, helpOf(name)));
  }
  const command = program
    .command("serve")
    .description(
      "Serve resources of etcd, of another watch-fanout, or of an embedded store, until SIGTERM or SIGINT.",
    )
    .addHelpText("after", helpFooter);
  for (const option of flags.values()) command.addOption(option);
  command.action(async () => {
    const config = readConfig(command, flags);
    // Imported here, since the client commands start faster without the server.
    const { serve } = await import("./serve.ts");
    await serve(config);
  });
}

/** A flag that collects its values in order. Without a value it is on. */
function collecting(name: string, value: string, help: string): Option {
  return new Option(`${flagOf(name)} ${value}`, help)
    .preset("on")
    .argParser((text: string, before: readonly string[] = []) => [...before, text]);
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
