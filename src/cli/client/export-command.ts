import type { Command } from "commander";
import { invalidRequest } from "../../base/errors.ts";
import type { Client } from "../../client/client.ts";
import { isGiven } from "../contexts/use-context.ts";
import type { CommandIo } from "../output/command-io.ts";
import { quantity } from "../output/printable.ts";
import { type ExportHeader, footerLine, headerLine, objectLine } from "../transfer/export-file.ts";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  usageError,
  wholeNumber,
} from "./client-options.ts";
import { runSession, type Session } from "./client-session.ts";

interface ExportOptions extends ClientOptions, HistoryOptions {
  readonly all?: true;
  readonly prefix?: string;
  readonly at?: number;
}

/** Adds `export`. */
export function addExport(program: Command, io: CommandIo): void {
  const command = program
    .command("export")
    .description(
      "Write the objects of one or more resources at one revision to standard output, as lines of JSON for `import`.",
    )
    .option("--all", "all resources that the caller may read, instead of those of --resource")
    .option("--prefix <prefix>", "only keys with this prefix")
    .option(
      "--at <revision>",
      "the state of this revision (default: the current one)",
      wholeNumber,
    );
  addHistoryOption(addClientOptions(command));
  const resources = severalResources(command);
  command.action(async (options: ExportOptions) => {
    if (options.all === true && isGiven(command, "resource")) {
      usageError(command, "--all can't be used with --resource.");
    }
    if (options.at === 0) usageError(command, "--at must be at least 1.");
    await runSession(io, options, async (session) => {
      const all = options.all === true ? await allResources(session.client) : resources();
      await printExport(session, options, all);
    });
  });
}

/** Lets --resource be repeated. */
function severalResources(command: Command): () => readonly string[] {
  const given: string[] = [];
  command.options
    .find(({ long }) => long === "--resource")
    ?.argParser((text) => {
      given.push(text);
      return text;
    });
  return () => [...new Set(given.length === 0 ? [command.opts<ClientOptions>().resource] : given)];
}

async function allResources(client: Client): Promise<readonly string[]> {
  const names = (await client.resources()).map(({ name }) => name);
  if (names.length > 0) return names;
  throw invalidRequest("resource", "The service has no resource that the caller may read.");
}

async function printExport(
  { client, output, say }: Session,
  options: ExportOptions,
  names: readonly string[],
): Promise<void> {
  const { prefix = "" } = options;
  const resources = await positionsOf(client, names, options);
  await output.write(headerLine({ resources, prefix }));
  let count = 0;
  for (const { name, revision, history_id: historyId } of resources) {
    const at = { match: "EXACT", revision } as const;
    for await (const { items } of client.list(name, { prefix, at, historyId })) {
      for (const object of items) await output.write(objectLine(name, object));
      count += items.length;
    }
  }
  await output.write(footerLine(count));
  const revisions = [...new Set(resources.map(({ revision }) => revision))];
  const at = `revision${revisions.length === 1 ? "" : "s"} ${revisions.join(", ")}`;
  say(`Exported ${quantity(count, "object")} at ${at}.`);
}

/** The revision to read each resource at: the one that was asked for, or the newest of any resource of its store. */
async function positionsOf(
  client: Client,
  names: readonly string[],
  { prefix, at: revision, historyId }: ExportOptions,
): Promise<ExportHeader["resources"]> {
  const at = revision === undefined ? undefined : ({ match: "EXACT", revision } as const);
  const found: ExportHeader["resources"] = [];
  /** By the history of the store. */
  const newest = new Map<string, number>();
  for (const name of names) {
    const page = await client.page(name, { prefix, view: "KEYS", pageSize: 1, historyId, at });
    found.push({ name, revision: page.revision, history_id: page.historyId });
    newest.set(page.historyId, Math.max(page.revision, newest.get(page.historyId) ?? 0));
  }
  if (revision !== undefined && newest.size > 1) {
    throw invalidRequest(
      "at",
      "The resources are in several stores, whose revisions differ. Leave --at out.",
    );
  }
  return found.map((resource) => ({
    ...resource,
    revision: revision ?? newest.get(resource.history_id) ?? resource.revision,
  }));
}
