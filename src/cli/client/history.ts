import { type Command, InvalidArgumentError } from "commander";
import { hasReason } from "../../base/errors.ts";
import type { Client } from "../../client/client.ts";
import type { HistoryPage } from "../../client/watch/client-calls.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import { type CommandIo, tableOptions } from "../output/command-io.ts";
import { bytesOf, printableBytes } from "../output/printable.ts";
import { type Cell, Table } from "../output/table.ts";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  usageError,
  wholeNumber,
} from "./client-options.ts";
import { runSession, type Session } from "./client-session.ts";
import { DecodedPrinter } from "./decoded/decoded-printer.ts";
import { isDecoded } from "./decoded/output-format.ts";
import { historyPageJson, printValueLine } from "./object-output.ts";
import { type DiffSide, diffLines } from "./value-diff.ts";
import { eventColours } from "./watch.ts";

interface KeyHistoryOptions extends ClientOptions, HistoryOptions {
  readonly revision?: number;
  readonly limit?: number;
  readonly keysOnly?: true;
}

/** Adds `history`. */
export function addHistory(program: Command, io: CommandIo): void {
  const command = program
    .command("history")
    .description(
      "Print the changes of one object, the newest first, as far back as the store has them.",
    )
    .argument("<key>", "the object's key, relative to the resource's prefix")
    .option("--revision <revision>", "only changes up to this revision", wholeNumber)
    .option("--limit <count>", "at most this many changes", wholeNumber)
    .option("--keys-only", "without the values, which the service does not send then");
  addHistoryOption(addClientOptions(command)).action(
    async (key: string, options: KeyHistoryOptions) => {
      await runSession(io, options, async (session) => {
        const print = await pagePrinter(session, options);
        let last: HistoryPage | undefined;
        for await (const page of limited(session.client, key, options)) {
          await print(page);
          last = page;
        }
        const end = endText(last);
        if (end !== undefined && options.output !== "json") session.say(end);
      });
    },
  );
}

/** The pages of a history, up to the limit. */
async function* limited(
  client: Client,
  key: string,
  { resource, limit = 0, keysOnly, ...options }: KeyHistoryOptions,
): AsyncGenerator<HistoryPage, void, void> {
  const view = keysOnly === true ? "KEYS" : "FULL";
  const { revision, historyId } = options;
  let pageToken = "";
  let rest = limit;
  do {
    const request = { view, revision, historyId, pageSize: rest, pageToken } as const;
    const page = await client.historyPage(resource, key, request);
    yield page;
    rest -= page.events.length;
    pageToken = page.nextPageToken;
  } while (pageToken !== "" && (limit === 0 || rest > 0));
}

/** What the reader of a table has to know of a history that does not begin with the first creation of the key. */
function endText(last: HistoryPage | undefined): string | undefined {
  if (last?.end === "COMPACTION") {
    return `The store no longer has the changes before these: it was compacted at revision ${last.oldestRevision}.`;
  }
  if (last?.end !== "LIMIT") return undefined;
  return `Before revision ${last.oldestRevision} there may be more: to look for it would cost the store too much.`;
}

async function pagePrinter(
  session: Session,
  options: KeyHistoryOptions,
): Promise<(page: HistoryPage) => Promise<void>> {
  const { output, io } = session;
  const { resource, output: format } = options;
  if (isDecoded(format)) {
    const printer = await DecodedPrinter.open(session, { ...options, output: format }, [resource]);
    return ({ events }) => printer.printEvents(resource, events);
  }
  switch (format) {
    case "json":
      return (page) => output.write(historyPageJson(page));
    case "table": {
      const table = new Table(["REVISION", "EVENT", "VERSION", "SIZE", "VALUE"], {
        ...tableOptions(io),
        widths: [0, "MODIFIED".length],
      });
      return ({ events }) => output.write(table.format(events.map(changeRow)));
    }
    case "value":
      return async ({ events }) => {
        for (const { type, object } of events) {
          if (type !== "DELETED") await printValueLine(output, object);
        }
      };
  }
}

function changeRow({ type, object }: WatchEvent): Cell[] {
  return [
    String(object.modRevision),
    { text: type, colour: eventColours[type] },
    String(object.version),
    bytesOf(object.valueBytes),
    printableBytes(object.value),
  ];
}

interface DiffOptions extends ClientOptions, HistoryOptions {}

/** Adds `diff`. */
export function addDiff(program: Command, io: CommandIo): void {
  const command = program
    .command("diff")
    .description(
      "Print the lines of an object's value that differ between two revisions. JSON is formatted first.",
    )
    .argument("<key>", "the object's key, relative to the resource's prefix")
    .argument("<old>", "the revision to compare, such as one that `history` prints", revision)
    .argument("[new]", "the revision to compare with (default: the current one)", revision);
  addHistoryOption(addClientOptions(command)).action(
    async (key: string, old: number, newer: number | undefined, options: DiffOptions) => {
      const isGiven = command.getOptionValueSource("output") === "cli";
      if (isGiven && options.output !== "table") {
        usageError(command, "diff prints lines. Leave --output out.");
      }
      await runSession(io, options, async ({ client, output, io: { stdout } }) => {
        const { resource, historyId: given } = options;
        const before = await sideAt(
          client,
          key,
          { match: "EXACT", revision: old },
          resource,
          given,
        );
        const at: RevisionRequirement =
          newer === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision: newer };
        const after = await sideAt(client, key, at, resource, before.historyId ?? given);
        if (before.object === undefined && after.object === undefined) throw after.absence;
        for (const line of diffLines(key, before, after, tableOptions({ stdout }).colours)) {
          await output.write(line);
        }
      });
    },
  );
}

/** Parses a revision to read at. */
function revision(text: string): number {
  const parsed = wholeNumber(text);
  if (parsed >= 1) return parsed;
  throw new InvalidArgumentError("Revisions begin at 1.");
}

interface ReadSide extends DiffSide {
  /** Undefined if the object does not exist. */
  readonly historyId: string | undefined;
  /** The error for its absence. */
  readonly absence: unknown;
}

/** The object at a revision. */
async function sideAt(
  client: Client,
  key: string,
  at: RevisionRequirement,
  resource: string,
  historyId: string | undefined,
): Promise<ReadSide> {
  try {
    const result = await client.get(resource, key, { at, historyId });
    return { ...result, absence: undefined };
  } catch (error) {
    if (!hasReason(error, "OBJECT_NOT_FOUND")) throw error;
    const found = Number(error.metadata["revision"]);
    return { revision: found, object: undefined, historyId: undefined, absence: error };
  }
}
