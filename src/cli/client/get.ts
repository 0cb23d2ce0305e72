import type { Command } from "commander";
import {
  addClientOptions,
  addRevisionOptions,
  type ClientOptions,
  type RevisionOptions,
  revisionRequirement,
} from "./client-options.ts";
import { type ClientIo, runSession } from "./client-session.ts";
import { printObject } from "./object-output.ts";

/** Adds `get`. */
export function addGet(program: Command, io: ClientIo): void {
  const command = program
    .command("get")
    .description("Read one object.")
    .argument("<key>", "the object's key, relative to the resource's prefix");
  addRevisionOptions(addClientOptions(command)).action(
    async (key: string, options: ClientOptions & RevisionOptions) => {
      const at = revisionRequirement(command, options);
      await runSession(io, options, async (session) => {
        const result = await session.client.get(options.resource, key, {
          at,
          historyId: options.historyId,
        });
        await printObject(session, options.output, result);
      });
    },
  );
}
