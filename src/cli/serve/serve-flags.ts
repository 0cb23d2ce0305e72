import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { ConfigError } from "../../config/config-error.ts";
import { type LoadedConfig, loadWithSnapshot } from "../../config/load-config.ts";
import { definition, flagOf, type OptionName } from "../../config/options.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { printableText } from "../output/printable.ts";

/** The flag of the configuration file. */
export function configFlag(): Option {
  return collecting(
    "config",
    "<FILE>",
    "YAML file with any of these options, by their names without the leading dashes. resources: is a list " +
      "of mappings with name, prefix and more: see docs/configuration.md.",
  );
}

/** The flag of an option; undefined for a secret, which has no flag. */
export function serveFlag(name: OptionName): Option | undefined {
  const { secret, value, isSwitch = false } = definition(name);
  if (secret === true) return undefined;
  return collecting(name, isSwitch ? value : `<${value}>`, helpOf(name));
}

/**
 * Loads the configuration from flags, by name and in the order in which they were typed, the environment and a file. Ends
 * the process with all problems, which `present` translates.
 */
export function readConfig(
  command: Command,
  flags: Readonly<Record<string, readonly string[] | undefined>>,
  present: (problem: string) => string = (problem) => problem,
  defaults: Readonly<Record<string, readonly string[] | undefined>> = {},
): LoadedConfig {
  try {
    const readFile = (path: string) => readFileSync(path);
    return loadWithSnapshot({ flags, env: process.env, defaults, readFile });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const lines = error.problems.map((problem) => `error: ${printableText(present(problem))}`);
    return command.error(lines.join("\n"), { exitCode: exitCodes.usage });
  }
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
