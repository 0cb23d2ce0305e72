#!/usr/bin/env node
import { argv } from "node:process";
import { Command, CommanderError } from "commander";
import { addClientCommands } from "./client/client-commands.ts";
import { exitCodes } from "./output/exit-codes.ts";
import { version } from "./output/version.ts";
import { addServeCommand } from "./serve/serve-command.ts";

// Deprecations are for those who work on the code. grpc-js gives TLS the address as a server's name also
// where it is an IP, and Node.js would say so (DEP0123) at every call.
process.noDeprecation = true;

// Commands made by `program.command()` inherit what is set here before.
const program = new Command("watch-fanout")
  .description(
    "One etcd watch per resource, served to thousands of gRPC clients from a watch cache.",
  )
  .version(version)
  .showSuggestionAfterError()
  .exitOverride();

addServeCommand(program);
addClientCommands(program);

try {
  await program.parseAsync(argv);
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  // commander has said what is wrong already, or has shown the help that was asked for.
  process.exitCode = error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
}
