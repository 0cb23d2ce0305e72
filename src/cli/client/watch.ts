import { type Command, InvalidArgumentError, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { AtomicBatch } from "../../client/watch/client-calls.ts";
import type { EventType, WatchEvent } from "../../model/event.ts";
import type { Scope } from "../../storage/storage.ts";
import { type CommandIo, tableOptions } from "../output/command-io.ts";
import { printableBytes, printableText } from "../output/printable.ts";
import { batchJson } from "../output/proto-json.ts";
import { type Cell, type Colour, Table } from "../output/table.ts";
import {
  addClientOptions,
  addHistoryOption,
  addRangeOptions,
  addSelectorOptions,
  addShardOption,
  addViewOptions,
  type ClientOptions,
  type Format,
  type HistoryOptions,
  prefixHelp,
  prefixOf,
  type RangeOptions,
  rangeOf,
  type SelectorOptions,
  type ShardOptions,
  selectorsOf,
  usageError,
  type ViewOptions,
  viewOf,
  wholeNumber,
} from "./client-options.ts";
import { runSession, type Session } from "./client-session.ts";
import { printValueLine, shownBytes } from "./object-output.ts";

interface WatchOptions
  extends ClientOptions,
    SelectorOptions,
    HistoryOptions,
    ShardOptions,
    ViewOptions,
    RangeOptions {
  readonly eventTypes?: readonly EventType[];
  readonly key?: string;
  readonly prefix?: string;
  readonly afterRevision?: number;
  readonly initial?: true;
  readonly latest?: true;
  readonly previous?: true;
}

/** Adds `watch`. */
export function addWatch(program: Command, io: CommandIo): void {
  const command = program
    .command("watch")
    .description(
      "Print changes until interrupted. An interrupted stream resumes at its last resume point. The events of an atomic batch are printed together.",
    )
    .argument("[prefix]", prefixHelp)
    .option("--key <key>", "only this object")
    .option("--prefix <prefix>", "the same as the argument")
    .option(
      "--after-revision <revision>",
      "begin after this revision (default: now); with --initial: the minimum revision of the initial state",
      wholeNumber,
    )
    .option("--initial", "print the current state first")
    .option(
      "--latest",
      "when the client falls behind, get the latest state of each object instead of an error",
    )
    .addOption(new Option("--previous", "print the previous object with each event; json only"));
  addRangeOptions(command);
  addShardOption(addViewOptions(addSelectorOptions(command))).option(
    "--event-types <type,...>",
    "only these events: added, modified, deleted",
    eventTypes,
  );
  const all = addHistoryOption(addClientOptions(command));
  all.action(async (argument: string | undefined, given: WatchOptions) => {
    const prefix = prefixOf(command, argument, given.prefix);
    const options = { ...given, ...(prefix !== undefined && { prefix }) };
    if (options.key !== undefined && prefix !== undefined) {
      usageError(command, "--key and --prefix can't be used together.");
    }
    if (rangeOf(options) !== undefined && scopeOf(options) !== undefined) {
      usageError(command, "--from and --to can't be used with --key or --prefix.");
    }
    if (options.previous === true && options.output !== "json") {
      usageError(command, "--previous needs -o json.");
    }
    await runSession(io, options, (session) => watch(session, options));
  });
}

async function watch(session: Session, options: WatchOptions): Promise<void> {
  const { client, output, io, say } = session;
  const interrupted = new AbortController();
  const stopListening = io.onInterrupt(() => interrupted.abort());
  /** The last failure; undefined while there is a stream. */
  let failure: WatchFanoutError | undefined;
  // Only the first response has a time limit.
  const missing = new AbortController();
  const timer = systemClock.setTimeout(() => {
    const text = `No response arrived within ${options.timeout / 1000} s.`;
    missing.abort(failure ?? upstreamUnavailable(text));
  }, options.timeout);
  try {
    const batches = client.watch(options.resource, {
      ...selectorsOf(options),
      ...viewOf(options),
      shard: options.shard,
      eventTypes: options.eventTypes,
      scope: scopeOf(options),
      range: rangeOf(options),
      afterRevision: options.afterRevision,
      sendInitialEvents: options.initial,
      delivery: options.latest === true ? "LATEST_STATE" : undefined,
      includePrevious: options.previous,
      historyId: options.historyId,
      signal: AbortSignal.any([interrupted.signal, output.failed, missing.signal]),
      onOpened: () => {
        timer.cancel();
        if (failure !== undefined) say("The watch has resumed.");
        failure = undefined;
      },
      onInterruption: ({ error, resumeRevision }) => {
        // An attempt to resume that fails for the same reason is not reported.
        const isNew = error.reason !== failure?.reason;
        failure = error;
        const from = resumeRevision === undefined ? "" : ` after revision ${resumeRevision}`;
        if (isNew) say(`${error.message} Retrying to resume${from}.`);
      },
    });
    const print = batchPrinter(session, options.output);
    for await (const batch of batches) await print(batch);
    if (interrupted.signal.aborted) return;
    missing.signal.throwIfAborted();
  } finally {
    timer.cancel();
    stopListening();
  }
}

function eventTypes(text: string): readonly EventType[] {
  return text.split(",").map((name) => {
    const type = name.trim().toUpperCase();
    if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") return type;
    throw new InvalidArgumentError("The types are added, modified and deleted.");
  });
}

function scopeOf({ key, prefix }: WatchOptions): Scope | undefined {
  if (key !== undefined) return { key };
  return prefix === undefined ? undefined : { prefix };
}

function batchPrinter(
  { output, io }: Session,
  format: Format,
): (batch: AtomicBatch) => Promise<void> {
  switch (format) {
    case "json":
      return async (batch) => {
        for (const line of batchJson(batch)) await output.write(line);
      };
    case "table": {
      const options = { ...tableOptions(io), widths: [0, "MODIFIED".length] };
      const table = new Table(["REVISION", "EVENT", "KEY", "VALUE"], options);
      return async ({ events }) => {
        if (events.length > 0) await output.write(table.format(events.map(eventRow)));
      };
    }
    case "value":
      return async ({ events }) => {
        for (const event of events) {
          if (event.type !== "DELETED") await printValueLine(output, event.object);
        }
      };
  }
}

export const eventColours: Readonly<Record<EventType, Colour>> = {
  ADDED: "green",
  MODIFIED: "yellow",
  DELETED: "red",
};

function eventRow({ type, object }: WatchEvent): Cell[] {
  return [
    String(object.modRevision),
    { text: type, colour: eventColours[type] },
    printableText(object.key),
    printableBytes(shownBytes(object)),
  ];
}
