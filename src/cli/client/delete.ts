import type { Command } from "commander";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  wholeNumber,
} from "./client-options.ts";
import { type ClientIo, runSession } from "./client-session.ts";
import { printObject } from "./object-output.ts";

interface DeleteOptions extends ClientOptions, HistoryOptions {
  readonly expectedModRevision?: number;
}

/** Adds `delete`. */
export function addDelete(program: Command, io: ClientIo): void {
  const command = program
    .command("delete")
    .description("Delete an object, and print its last state.")
    .argument("<key>", "the object's key, relative to the resource's prefix")
    .option(
      "--expected-mod-revision <revision>",
      "delete it only if its mod_revision is this",
      wholeNumber,
    );
  addHistoryOption(addClientOptions(command)).action(
    async (key: string, options: DeleteOptions) => {
      await runSession(io, options, async (session) => {
        const { expectedModRevision, historyId } = options;
        const result = await session.client.delete(options.resource, key, {
          expectedModRevision,
          historyId,
        });
        await printObject(session, options.output, result);
      });
    },
  );
}
