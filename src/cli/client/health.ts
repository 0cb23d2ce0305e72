import type { Command } from "commander";
import { exitCodes } from "../output/exit-codes.ts";
import { addClientOptions, type ClientOptions } from "./client-options.ts";
import { type ClientIo, runSession } from "./client-session.ts";

/** Adds `health`. */
export function addHealth(program: Command, io: ClientIo): void {
  const command = program
    .command("health")
    .description("Ask the service whether it serves, for probes: exit code 0 if it does.")
    .argument("[service]", "one service (default: that of --resource if given, otherwise all)");
  addClientOptions(command).action(
    async (service: string | undefined, options: ClientOptions): Promise<void> => {
      await runSession(io, options, async ({ client, output }) => {
        const isGiven = command.getOptionValueSource("resource") !== "default";
        const isServing = await client.isServing(
          service ?? (isGiven ? `resource/${options.resource}` : ""),
        );
        await output.write(isServing ? "SERVING\n" : "NOT_SERVING\n");
        if (!isServing) io.exitWith(exitCodes.unavailable);
      });
    },
  );
}
