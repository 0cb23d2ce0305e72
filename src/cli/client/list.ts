import type { Command } from "commander";
import {
  addClientOptions,
  addRevisionOptions,
  addSelectorOptions,
  type ClientOptions,
  prefixHelp,
  prefixOf,
  type RevisionOptions,
  revisionRequirement,
  type SelectorOptions,
  selectorsOf,
  wholeNumber,
} from "./client-options.ts";
import { type ClientIo, runSession } from "./client-session.ts";
import { printPages } from "./object-output.ts";

interface ListOptions extends ClientOptions, RevisionOptions, SelectorOptions {
  readonly prefix?: string;
  readonly pageSize?: number;
}

/** Adds `list`. */
export function addList(program: Command, io: ClientIo): void {
  const command = program
    .command("list")
    .description("Read all objects of a resource, or those below a prefix, in key order.")
    .argument("[prefix]", prefixHelp)
    .option("--prefix <prefix>", "the same as the argument")
    .option("--page-size <count>", "number of objects per request", wholeNumber);
  addSelectorOptions(command);
  const all = addRevisionOptions(addClientOptions(command));
  all.action(async (argument: string | undefined, options: ListOptions) => {
    const prefix = prefixOf(command, argument, options.prefix);
    const at = revisionRequirement(command, options);
    await runSession(io, options, async (session) => {
      const { pageSize, historyId } = options;
      const pages = session.client.list(options.resource, {
        ...selectorsOf(options),
        prefix,
        pageSize,
        at,
        historyId,
      });
      await printPages(session, options.output, pages);
    });
  });
}
