import { Argument, type Command, Option } from "commander";
import { messageOf } from "../../base/errors.ts";
import { dataOptionNames } from "../../config/data-options.ts";
import type { OptionName } from "../../config/options.ts";
import { exitCodes, refuse } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { addServeFlags, type FlagHelp, readConfig, typedValues } from "../serve/serve-command.ts";
import { type ProxyFlag, proxyFlags } from "./proxy-flags.ts";
import {
  discoverMembers,
  discoveryOf,
  proxyOptions,
  type TypedFlags,
  withProxyNames,
} from "./proxy-options.ts";

const helpFooter = `
A manifest of \`etcd grpc-proxy start\` starts this command: flags that have no
effect here are warnings, and those that nothing replaces are refused, with what
to do instead. The flags of \`watch-fanout serve\` and its environment variables
apply as well. Every key is cached; --resource NAME=PREFIX caches less,
--cache=false nothing. docs/from-grpc-proxy.md says what differs, and how much
memory a cache takes.

Example:
  watch-fanout etcd-proxy --endpoints 10.0.0.1:2379,10.0.0.2:2379 \\
    --listen-addr 0.0.0.0:2379
`;

/** Options of `serve` that this command sets itself. */
const preset: readonly OptionName[] = [
  ...(["etcd", "listen", "admin", "insecure", "etcd-api"] as const),
  ...dataOptionNames,
];

/** Options of `serve` that have another default or effect here. */
const changed: Readonly<Partial<Record<OptionName, FlagHelp>>> = {
  resource: {
    help: "Cache only the keys that begin with PREFIX, in place of every key. Repeatable. Prefixes must not overlap.",
    default: "all= (every key)",
  },
  "etcd-history-create": {
    help: "Create --etcd-history-key where it does not exist. Without that key a restore of etcd is noticed only by revisions that contradict it.",
    default: "off",
  },
  "watch-fanout-api": {
    help: "Serve ListWatchService and WriteService, of resources, beside etcd's own API.",
    default: "off",
  },
};

/** Adds `etcd-proxy`, which serves etcd's API with the flags of `etcd grpc-proxy start`. */
export function addEtcdProxyCommand(program: Command): void {
  const command = program
    .command("etcd-proxy")
    // As in `etcd grpc-proxy start`, so that a manifest needs no other change than the name.
    .addArgument(new Argument("[start]", "no effect").choices(["start"]))
    .description("Serve etcd's own gRPC API in the place of `etcd grpc-proxy start`.")
    .addHelpText("after", helpFooter);
  const own = new Map(Object.entries(proxyFlags).map(([name, flag]) => [name, flagOf(name, flag)]));
  const taken = new Set<OptionName>(preset);
  for (const flag of Object.values(proxyFlags))
    if (flag.option !== undefined) taken.add(flag.option);
  for (const option of own.values()) {
    command.addOption(option.helpGroup("Flags of etcd grpc-proxy start, and --cache:"));
  }
  const others = addServeFlags(command, taken, changed);
  command.action(async () => {
    const typed = await withMembers(typedValues(command, own));
    const { flags, defaults, problems, warnings } = proxyOptions(typed);
    if (problems.length > 0) refuse(command, problems);
    const loaded = readConfig(command, { ...flags, ...others() }, withProxyNames, defaults);
    for (const warning of warnings) process.stderr.write(`warning: ${printableText(warning)}\n`);
    // Imported here, since the client commands start faster without the server.
    const { runService } = await import("../serve/run-service.ts");
    // The line that etcd's own tests and some supervisors wait for.
    await runService(loaded, "started gRPC proxy\n", withProxyNames);
  });
}

/** The flags with the members of --discovery-srv, if that is given. Ends the process if the lookup fails. */
async function withMembers(typed: TypedFlags): Promise<TypedFlags> {
  const discovery = discoveryOf(typed);
  if (discovery === undefined) return typed;
  try {
    return { ...typed, endpoints: await discoverMembers(discovery) };
  } catch (error) {
    process.stderr.write(`error: --discovery-srv: ${printableText(messageOf(error))}\n`);
    process.exit(exitCodes.failed);
  }
}

function flagOf(name: string, { value, help, default: text, refused }: ProxyFlag): Option {
  const shown = value === undefined ? "[true|false]" : `<${value}>`;
  const what = help ?? (refused === undefined ? "No effect." : "Refused.");
  return new Option(`--${name} ${shown}`, text === undefined ? what : `${what} (default: ${text})`)
    .preset("true")
    .argParser((typed: string, before: readonly string[] = []) => [...before, typed]);
}
