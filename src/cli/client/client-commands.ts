import { createReadStream } from "node:fs";
import type { Command } from "commander";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import type { PageOptions } from "../../client/calls/options.ts";
import type { Client } from "../../client/client.ts";
import type { ResourceInfo } from "../../client/resource-info.ts";
import type { Page } from "../../client/watch/client-calls.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import { isGiven } from "../contexts/use-context.ts";
import {
  type CommandIo,
  exitCodes,
  processIo,
  readInput,
  tableOptions,
} from "../output/command-io.ts";
import { Table } from "../output/table.ts";
import { addBench } from "./bench-command.ts";
import {
  addClientOptions,
  addHistoryOption,
  addRangeOptions,
  addRevisionOptions,
  addSelectorOptions,
  addShardOption,
  addViewOptions,
  type ClientOptions,
  type HistoryOptions,
  leaseId,
  orderOf,
  orderOption,
  prefixHelp,
  prefixOf,
  type RangeOptions,
  type RevisionOptions,
  rangeOf,
  requireFormat,
  revisionRequirement,
  type SelectorOptions,
  type ShardOptions,
  selectorsOf,
  timeToLive,
  usageError,
  type ViewOptions,
  viewOf,
  wholeNumber,
} from "./client-options.ts";
import { runSession } from "./client-session.ts";
import { addCompletion } from "./completion-command.ts";
import { addContextCommands } from "./context-commands.ts";
import { isDecoded } from "./decoded/output-format.ts";
import { addDelete } from "./delete-command.ts";
import { addExport } from "./export-command.ts";
import { addDiff, addHistory } from "./history.ts";
import { addImport } from "./import-command.ts";
import { addLeaseCommands } from "./lease-commands.ts";
import { addElect, addLock } from "./lock-commands.ts";
import { printCount, printObject, printPages, resourcesJson } from "./object-output.ts";
import { addStaleOption, type StaleOptions } from "./staleness.ts";
import { addTxn } from "./txn-command.ts";
import { addWatch } from "./watch.ts";

/** Adds the commands that talk to a running service: get, list, watch, history, diff, put, delete, ... */
export function addClientCommands(program: Command, io: CommandIo = processIo): void {
  addGet(program, io);
  addList(program, io);
  addWatch(program, io);
  addHistory(program, io);
  addDiff(program, io);
  addPut(program, io);
  addDelete(program, io);
  addTxn(program, io);
  addLeaseCommands(program, io);
  addLock(program, io);
  addElect(program, io);
  addResources(program, io);
  addHealth(program, io);
  addExport(program, io);
  addImport(program, io);
  addBench(program, io);
  addContextCommands(program, io);
  addCompletion(program, io);
}

interface GetOptions extends ClientOptions, RevisionOptions, StaleOptions, ViewOptions {}

/** The options that say how recent a response must be. */
const revisionFlags = ["at", "revision", "revisionMatch"];

/** The revision requirement, also of a response that may be stale. */
function requirementOf(
  command: Command,
  options: RevisionOptions & StaleOptions,
): RevisionRequirement {
  if (options.maxStale !== undefined) return { match: "ANY" };
  return revisionRequirement(command, options);
}

/** Adds `get`. */
function addGet(program: Command, io: CommandIo): void {
  const command = program
    .command("get")
    .description("Read objects by their keys, all at one revision.")
    .argument("<key...>", "the objects' keys, relative to the resource's prefix");
  addRevisionOptions(addClientOptions(addViewOptions(command)));
  addStaleOption(command, revisionFlags).action(
    async (keys: readonly string[], options: GetOptions) => {
      const at = requirementOf(command, options);
      const { resource, historyId, keysOnly, attributes, readMask } = options;
      const [key = ""] = keys;
      if (keys.length === 1) {
        return runSession(io, options, async (session) => {
          const result = await session.client.get(resource, key, {
            ...viewOf(options),
            at,
            historyId,
          });
          await printObject(session, options, result);
        });
      }
      if ((historyId ?? keysOnly ?? attributes ?? readMask) !== undefined) {
        usageError(
          command,
          "--history-id, --keys-only, --attributes and --read-mask are for one key.",
        );
      }
      await runSession(io, options, async (session) => {
        const names = keys.map((name) => ({ resource, key: name }));
        const { objects, ...result } = await session.client.batchGet(names, { at });
        const items = objects.filter((object) => object !== undefined);
        const page = { ...result, items, remainingItemCount: undefined, nextPageToken: "" };
        await printPages(session, options, [page]);
        const missing = keys.filter((_, n) => objects[n] === undefined);
        if (missing.length === 0) return;
        session.say(`These do not exist: ${missing.join(", ")}.`);
        io.exitWith(exitCodes.notFound);
      });
    },
  );
}

interface ListOptions
  extends ClientOptions,
    RevisionOptions,
    StaleOptions,
    SelectorOptions,
    ShardOptions,
    ViewOptions,
    RangeOptions {
  readonly order: string;
  readonly prefix?: string;
  readonly pageSize?: number;
  readonly limit?: number;
  readonly count?: true;
}

/** Adds `list`. */
function addList(program: Command, io: CommandIo): void {
  const command = program
    .command("list")
    .description("Read all objects of a resource, or those below a prefix or in a range of keys.")
    .argument("[prefix]", prefixHelp)
    .option("--prefix <prefix>", "the same as the argument")
    .option("--page-size <count>", "number of objects per request", wholeNumber)
    .option("--limit <count>", "at most this many objects", wholeNumber)
    .option("--count", "only the number of objects");
  addRangeOptions(command).addOption(orderOption());
  addShardOption(addViewOptions(addSelectorOptions(command)));
  const all = addStaleOption(addRevisionOptions(addClientOptions(command)), revisionFlags);
  all.action(async (argument: string | undefined, options: ListOptions) => {
    const prefix = prefixOf(command, argument, options.prefix);
    const at = requirementOf(command, options);
    const range = rangeOf(command, options);
    if (options.count === true) {
      const conflict = countConflict(options);
      if (conflict !== undefined) usageError(command, `--count can't be used with ${conflict}.`);
    }
    await runSession(io, options, async (session) => {
      const { resource, historyId } = options;
      const { shard, order } = options;
      const selected = {
        ...{ ...selectorsOf(options), ...range },
        ...{ prefix, shard, at, historyId },
      };
      if (options.count === true)
        return printCount(session, options, await session.client.count(resource, selected));
      const pages = limited(session.client, options, {
        ...{ ...selected, ...viewOf(options), order: orderOf(order) },
      });
      await printPages(session, options, pages);
    });
  });
}

/** The option that makes no sense with --count. */
function countConflict(options: ListOptions): string | undefined {
  const { output, keysOnly, attributes, readMask, limit, pageSize } = options;
  if (output === "value") return "-o value";
  if (isDecoded(output)) return "a format that decodes values";
  if (keysOnly === true) return "--keys-only";
  if (attributes === true) return "--attributes";
  if (readMask !== undefined) return "--read-mask";
  if (limit !== undefined) return "--limit";
  return pageSize === undefined ? undefined : "--page-size";
}

/** The pages of a list, up to the limit. */
async function* limited(
  client: Client,
  { resource, limit = 0, pageSize = 0 }: ListOptions,
  selected: PageOptions,
): AsyncGenerator<Page, void, void> {
  if (limit === 0) return yield* client.list(resource, { ...selected, pageSize });
  let pageToken = "";
  let rest = limit;
  do {
    const size = pageSize === 0 ? rest : Math.min(rest, pageSize);
    const page = await client.page(resource, { ...selected, pageSize: size, pageToken });
    yield page;
    rest -= page.items.length;
    pageToken = page.nextPageToken;
  } while (rest > 0 && pageToken !== "");
}

/** Adds `resources`. */
function addResources(program: Command, io: CommandIo): void {
  const command = program
    .command("resources")
    .description("List the resources of the service of which the caller may read anything.");
  addClientOptions(command).action(async (options: ClientOptions) => {
    requireFormat(command, options, ["table", "json"]);
    await runSession(io, options, async ({ client, output }) => {
      const resources = await client.resources();
      if (options.output === "json") return output.write(resourcesJson(resources));
      const headings = ["NAME", "CODEC", "CACHE", "REVISION", "READABLE", "STALE FOR"];
      await output.write(new Table(headings, tableOptions(io)).format(resources.map(rowOf)));
    });
  });
}

function rowOf(resource: ResourceInfo): string[] {
  const { name, codec, isCached, revision, isReadableInFull, staleForMs } = resource;
  return [
    name,
    codec ?? "unknown",
    isCached ? "yes" : "no",
    revision === 0 ? "-" : String(revision),
    isReadableInFull ? "all" : "part",
    staleForMs === undefined ? "-" : `${(staleForMs / 1_000).toFixed(1)}s`,
  ];
}

/** Adds `health`. */
function addHealth(program: Command, io: CommandIo): void {
  const command = program
    .command("health")
    .description("Ask the service whether it serves, for probes: exit code 0 if it does.")
    .argument("[service]", "one service (default: that of --resource if given, otherwise all)");
  addClientOptions(command).action(
    async (service: string | undefined, options: ClientOptions): Promise<void> => {
      await runSession(io, options, async ({ client, output }) => {
        const isServing = await client.isServing(
          service ?? (isGiven(command, "resource") ? `resource/${options.resource}` : ""),
        );
        await output.write(isServing ? "SERVING\n" : "NOT_SERVING\n");
        if (!isServing) io.exitWith(exitCodes.unavailable);
      });
    },
  );
}

interface PutOptions extends ClientOptions, HistoryOptions {
  readonly file?: string;
  readonly expectedModRevision?: number;
  readonly lease?: bigint;
  /** Milliseconds. */
  readonly ttl?: number;
}

/** Adds `put`. */
export function addPut(program: Command, io: CommandIo): void {
  const command = program
    .command("put")
    .description("Create or replace an object.")
    .argument("<key>", "the object's key, relative to the resource's prefix")
    .argument("[value]", "the new value; - or absent: read it from standard input")
    .option("--file <path>", "read the value from this file")
    .option(
      "--expected-mod-revision <revision>",
      "write only if its mod_revision is this; 0: only if it does not exist",
      wholeNumber,
    )
    .option("--lease <id>", "attach the object to this lease", leaseId)
    .option(
      "--ttl <duration>",
      "delete the object after this time, in whole seconds, unless it is put again",
      timeToLive,
    );
  addHistoryOption(addClientOptions(command)).action(
    async (key: string, value: string | undefined, options: PutOptions) => {
      if (value !== undefined && options.file !== undefined) {
        usageError(command, "give the value as an argument or with --file, not both.");
      }
      if (value === undefined && options.file === undefined && io.stdin.isTTY === true) {
        usageError(command, "give the value, --file, or - to type it.");
      }
      if (options.ttl !== undefined && options.lease !== undefined) {
        usageError(command, "--ttl creates a lease, so it can't be used with --lease.");
      }
      await runSession(io, options, async (session) => {
        const bytes = await readValue(io, value, options.file);
        const { expectedModRevision, lease, ttl, historyId } = options;
        const result = await session.client.put(options.resource, key, bytes, {
          expectedModRevision,
          lease,
          ttlMs: ttl,
          historyId,
        });
        await printObject(session, options, result);
      });
    },
  );
}

async function readValue(
  io: CommandIo,
  value: string | undefined,
  file: string | undefined,
): Promise<Uint8Array> {
  if (file !== undefined) return readValueFile(file);
  if (value !== undefined && value !== "-") return Buffer.from(value);
  return readInput(io.stdin, "Standard input", "value");
}

async function readValueFile(path: string): Promise<Uint8Array> {
  try {
    return await readInput(createReadStream(path), "The file", "value");
  } catch (error) {
    if (error instanceof WatchFanoutError) throw error;
    throw invalidRequest("value", `--file can't be read: ${messageOf(error)}.`);
  }
}
