import type { Command } from "commander";
import type { CommandIo } from "../output/command-io.ts";
import { quantity } from "../output/printable.ts";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  requireFormat,
  usageError,
  wholeNumber,
} from "./client-options.ts";
import { runSession } from "./client-session.ts";
import { deletePrefixJson, printObject } from "./object-output.ts";

interface DeleteOptions extends ClientOptions, HistoryOptions {
  readonly expectedModRevision?: number;
  readonly prefix?: string;
  readonly everyKey?: true;
  readonly dryRun?: true;
}

/** Adds `delete`. */
export function addDelete(program: Command, io: CommandIo): void {
  const command = program
    .command("delete")
    .description(
      "Delete an object, and print its last state; or all below a prefix, at one revision, and print their number.",
    )
    .argument("[key]", "the object's key, relative to the resource's prefix")
    .option(
      "--expected-mod-revision <revision>",
      "delete it only if its mod_revision is this",
      wholeNumber,
    )
    .option("--prefix <prefix>", "delete all objects whose keys begin with this")
    .option("--every-key", "delete all objects of the resource")
    .option("--dry-run", "with --prefix or --every-key: print their number, and delete nothing");
  addHistoryOption(addClientOptions(command)).action(
    async (key: string | undefined, options: DeleteOptions) => {
      const { resource, prefix, everyKey, dryRun } = options;
      const { expectedModRevision, historyId } = options;
      const given = [key, prefix, everyKey].filter((value) => value !== undefined);
      if (given.length !== 1) usageError(command, "give a key, --prefix or --every-key.");
      if (key !== undefined) {
        if (dryRun === true) usageError(command, "--dry-run needs --prefix or --every-key.");
        return runSession(io, options, async (session) => {
          const condition = { expectedModRevision, historyId };
          const result = await session.client.delete(resource, key, condition);
          await printObject(session, options, result);
        });
      }
      if (prefix === "") usageError(command, "an empty --prefix is every key: use --every-key.");
      if (expectedModRevision !== undefined || historyId !== undefined) {
        usageError(command, "--expected-mod-revision and --history-id need a key.");
      }
      requireFormat(command, options, ["table", "json"]);
      await runSession(io, options, async ({ client, output }) => {
        const result = await client.deletePrefix(resource, prefix ?? "", {
          ...{ everyKey, validateOnly: dryRun },
        });
        if (options.output === "json") return output.write(deletePrefixJson(result));
        const objects = quantity(result.deleted, "object");
        await output.write(
          dryRun === true
            ? `Dry run: ${objects} would be deleted.\n`
            : `Deleted ${objects} at revision ${result.revision}.\n`,
        );
      });
    },
  );
}
