import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { type LoadedConfig, loadWithSnapshot } from "../../config/load-config.ts";
import { definition, flagOf, type OptionName, optionGroups } from "../../config/options.ts";
import { ConfigError } from "../../config/setting.ts";
import { exitCodes, refuse } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { startUpWarnings } from "./start-up-text.ts";

const helpFooter = `
Every option is also an environment variable (--etcd-ca is WATCH_FANOUT_ETCD_CA)
and a key of the file (etcd-ca). A flag takes precedence over a variable, a
variable over the file. The etcd password has no flag: use
WATCH_FANOUT_ETCD_PASSWORD, etcd-password in the file, or --etcd-password-file.
"watch-fanout config check" takes the same options and only checks them.

While etcd, or the upstream of a relay, is unreachable the service runs, is not
ready (/readyz has the reason) and retries. SIGTERM and SIGINT shut it down
gracefully, and so does closing its terminal. A second signal ends it at once.
Files that change are read without a signal.

Examples:
  watch-fanout serve
  watch-fanout serve --etcd http://127.0.0.1:2379 --resource services=/services/
  watch-fanout serve --upstream 127.0.0.1:50051 --listen 127.0.0.1:50052 \\
    --admin 127.0.0.1:8082
`;

/** Adds `serve`, with a flag for every option of the configuration. */
export function addServeCommand(program: Command): void {
  const command = program
    .command("serve")
    .description(
      "Serve resources of etcd, of another watch-fanout, or of an embedded store, until SIGTERM or SIGINT.",
    )
    .addHelpText("after", helpFooter);
  const typed = addServeFlags(command);
  command.action(async () => {
    const loaded = readConfig(command, typed());
    // Imported here, since the client commands start faster without the server.
    const { runService } = await import("./run-service.ts");
    await runService(loaded);
  });
}

/** Adds `config check`, with the flags of `serve`. It needs no service. */
export function addConfigCommand(program: Command): void {
  const command = program
    .command("config")
    .description("Check a configuration.")
    .command("check")
    .description(
      "Check the flags of serve, its variables and its file, with the files that they name, and print all problems. Nothing " +
        "is started.",
    )
    .addHelpText("after", `\nExit codes: 0, or ${exitCodes.usage} with a problem.\n`);
  const typed = addServeFlags(command);
  command.action(() => {
    const { config } = readConfig(command, typed());
    for (const warning of startUpWarnings(config)) {
      process.stderr.write(`warning: ${printableText(warning)}\n`);
    }
    process.stdout.write("The configuration is valid.\n");
  });
}

/** The values of each flag of `serve`, in the order in which they were typed. */
type TypedFlags = Readonly<Record<string, readonly string[] | undefined>>;

/** The help of an option, where a command other than `serve` has another one, or another default. */
export interface FlagHelp {
  readonly help?: string;
  readonly default: string;
}

/**
 * Adds the flags of `serve` to a command, in groups, except `without`. The returned function has their values once the
 * command line was parsed.
 */
export function addServeFlags(
  command: Command,
  without?: ReadonlySet<OptionName>,
  changed: Readonly<Partial<Record<OptionName, FlagHelp>>> = {},
): () => TypedFlags {
  const flags = new Map<string, Option>([["config", configFlag()]]);
  for (const { heading, names } of optionGroups) {
    for (const name of names) {
      const option = without?.has(name) === true ? undefined : serveFlag(name, changed[name]);
      if (option !== undefined) flags.set(name, option.helpGroup(`${heading}:`));
    }
  }
  for (const option of flags.values()) command.addOption(option);
  wrapHelp(command);
  return () => typedValues(command, flags);
}

/** The values of flags that were typed, by name. */
export function typedValues(command: Command, flags: ReadonlyMap<string, Option>): TypedFlags {
  const typed = [...flags].map(([name, option]) => [
    name,
    command.getOptionValue(option.attributeName()),
  ]);
  return Object.fromEntries(typed.filter(([, values]) => values !== undefined));
}

/** Indentation of the text below a flag. */
const indent = " ".repeat(6);

/** Width below which texts are not wrapped; commander's 40 would leave a terminal of 40 columns with the longest lines. */
const minTextWidth = 20;

/** Flags are long: their texts begin on a line of their own, and are wrapped. What a flag without a value means is in its text. */
function wrapHelp(command: Command): void {
  command.configureHelp({
    minWidthToWrap: minTextWidth,
    optionDescription: ({ description }) => description,
    formatItem: (term, _width, description, helper) => {
      if (description === "") return `  ${term}`;
      const lines = helper.boxWrap(description, (helper.helpWidth ?? 80) - indent.length);
      return `  ${term}\n${lines.replaceAll(/^/gm, indent)}`;
    },
  });
}

/** The flag of the configuration file. */
function configFlag(): Option {
  return collecting(
    "config",
    "<FILE>",
    "YAML file with any of these options, by their names without the leading dashes. resources: is a list " +
      "of mappings with name, prefix and more: see docs/reference/configuration.md.",
  );
}

/** The flag of an option; undefined for a secret, which has no flag. */
function serveFlag(name: OptionName, changed: FlagHelp | undefined): Option | undefined {
  const { secret, value, isSwitch = false } = definition(name);
  if (secret === true) return undefined;
  return collecting(name, isSwitch ? value : `<${value}>`, helpOf(name, changed));
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
    return refuse(command, error.problems.map(present));
  }
}

/** A flag that collects its values in order. Without a value it is on. */
function collecting(name: string, value: string, help: string): Option {
  return new Option(`${flagOf(name)} ${value}`, help)
    .preset("on")
    .argParser((text: string, before: readonly string[] = []) => [...before, text]);
}

function helpOf(name: OptionName, changed: FlagHelp | undefined): string {
  const { help, default: value, defaultHelp = value } = definition(name);
  const shown = changed?.default ?? defaultHelp;
  const text = changed?.help ?? help;
  return shown === undefined ? text : `${text} (default: ${shown})`;
}
