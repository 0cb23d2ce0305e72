import { argv } from "node:process";
import { Command, CommanderError } from "commander";
import { addEtcdProxyCommand } from "./etcd-proxy/etcd-proxy-command.ts";
import { exitCodeMeanings, exitCodes } from "./output/command-io.ts";
import { version } from "./output/version.ts";
import { addPolicyCommands } from "./policy/policy-commands.ts";
import { addConfigCommand, addServeCommand } from "./serve/serve-command.ts";
import { addTokenCommands } from "./token.ts";

// Deprecation warnings are for developers. grpc-js passes TLS the address as server name even if it is an IP address, for
// which Node.js would warn (DEP0123) at every call.
process.noDeprecation = true;

// As when the reader of help has ended, such as `head`.
process.stdout.on("error", () => {});

const codes = Object.entries(exitCodes) as [keyof typeof exitCodes, number][];
const codeLines = codes.map(([name, code]) => `  ${code}  ${exitCodeMeanings[name]}`);

// Commands made by `program.command()` inherit these settings.
const program = new Command("watch-fanout")
  .description(
    "One etcd watch per resource, served to thousands of gRPC clients from a watch cache.",
  )
  .version(version)
  .addHelpText("after", `\nExit codes:\n${codeLines.join("\n")}`)
  .showSuggestionAfterError()
  .exitOverride();

addServeCommand(program);
addConfigCommand(program);
addEtcdProxyCommand(program);
addPolicyCommands(program);
addTokenCommands(program);
// Imported here, since the commands so far start faster without the client library.
if (!program.commands.some((command) => command.name() === argv[2])) {
  const { addClientCommands } = await import("./client/client-commands.ts");
  addClientCommands(program);
  const { addTop } = await import("./top/top.ts");
  addTop(program);
  const { addBackupCommand } = await import("./data/backup-command.ts");
  addBackupCommand(program);
  const { addRestoreCommand } = await import("./data/restore-command.ts");
  addRestoreCommand(program);
}

try {
  await program.parseAsync(argv);
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  // commander has printed the error, or the help.
  process.exitCode = error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
}
