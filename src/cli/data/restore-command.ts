import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import type { Command } from "commander";
import { type CommandIo, processIo, reportFailure, say } from "../output/command-io.ts";

/** Adds `restore`. It needs no service. */
export function addRestoreCommand(program: Command, io: CommandIo = processIo): void {
  const command = program
    .command("restore")
    .description(
      "Make a data file of a backup, for `serve --data`. Its history has a new id, so that clients list again.",
    )
    .argument("<backup>", "the file that `backup` has written, which is checked and left as it is")
    .requiredOption("--data <file>", "the data file to make; it must not exist");
  command.action(async (backup: string, { data }: { readonly data: string }) => {
    const ending = new AbortController();
    const stop = io.onInterrupt(() => ending.abort(new Error("Interrupted.")));
    try {
      // Imported here: other commands start faster without it.
      const { restoreBackup } = await import("../../storage/journal/sqlite-journal.ts");
      await mkdir(dirname(data), { recursive: true, mode: 0o700 });
      await restoreBackup(backup, data, ending.signal);
      say(io, `Made ${data}.`);
    } catch (error) {
      reportFailure(io, error);
    } finally {
      stop();
    }
  });
}
