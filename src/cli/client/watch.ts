import { type Command, InvalidArgumentError, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { AtomicBatch } from "../../client/watch/client-calls.ts";
import type { EventType, WatchEvent } from "../../model/event.ts";
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
import { addScopeOptions, scopesOf, type WatchedScope } from "./watched-scopes.ts";

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
  readonly scope?: readonly WatchedScope[];
  readonly scopeKey?: readonly WatchedScope[];
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
      "begin after this revision (default: now); with --initial: its minimum revision",
      wholeNumber,
    )
    .option("--initial", "print the current state first")
    .option(
      "--latest",
      "when it falls behind, get the latest state of each object instead of an error",
    )
    .addOption(new Option("--previous", "print the previous object with each event; json only"));
  addRangeOptions(command);
  addShardOption(addViewOptions(addSelectorOptions(addScopeOptions(command)))).option(
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
    if (options.previous === true && options.output !== "json") {
      usageError(command, "--previous needs -o json.");
    }
    const scopes = scopesOf(command, options);
    if (rangeOf(options) !== undefined && scopes.some(({ scope }) => scope !== undefined)) {
      usageError(command, "--from and --to can't be used with --key, --prefix or --scope.");
    }
    await runSession(io, options, (session) => watchAll(session, options, scopes));
  });
}

/** Watches the scopes until interrupted, on one stream. The first watch that ends with an error ends all of them. */
async function watchAll(
  session: Session,
  options: WatchOptions,
  scopes: readonly WatchedScope[],
): Promise<void> {
  const { client, output, io, say } = session;
  const ended = new AbortController();
  const stopListening = io.onInterrupt(() => ended.abort());
  /** The last failure; undefined while there is a stream. */
  let failure: WatchFanoutError | undefined;
  // Only the first responses have a time limit.
  const missing = new AbortController();
  const waiting = new Set(scopes);
  const timer = systemClock.setTimeout(() => {
    const text = `No response arrived within ${options.timeout / 1000} s.`;
    missing.abort(failure ?? upstreamUnavailable(text));
  }, options.timeout);
  const signal = AbortSignal.any([ended.signal, output.failed, missing.signal]);
  const logger = { warn: (_: object, text: string) => say(`${text}.`) };
  const calls = scopes.length > 1 ? client.subscribe({ logger }) : client;
  const print = batchPrinter(session, options.output, scopes[0]?.name !== undefined);
  // The events of one batch are printed together.
  let printed = Promise.resolve();
  const watch = async (watched: WatchedScope): Promise<void> => {
    const batches = calls.watch(watched.resource, {
      ...selectorsOf(options),
      ...viewOf(options),
      shard: options.shard,
      eventTypes: options.eventTypes,
      scope: watched.scope,
      range: rangeOf(options),
      afterRevision: options.afterRevision,
      sendInitialEvents: options.initial,
      delivery: options.latest === true ? "LATEST_STATE" : undefined,
      includePrevious: options.previous,
      historyId: options.historyId,
      signal,
      onOpened: () => {
        waiting.delete(watched);
        if (waiting.size > 0) return;
        timer.cancel();
        if (failure !== undefined)
          say(`The watch${scopes.length > 1 ? "es have" : " has"} resumed.`);
        failure = undefined;
      },
      onInterruption: ({ error, resumeRevision }) => {
        waiting.add(watched);
        // An attempt to resume that fails for the same reason is not reported.
        const isNew = error.reason !== failure?.reason;
        failure = error;
        const from = resumeRevision === undefined ? "" : ` after revision ${resumeRevision}`;
        if (isNew) say(`${error.message} Retrying to resume${watchedName(watched)}${from}.`);
      },
    });
    for await (const batch of batches) {
      printed = printed.then(() => print(batch, watched));
      await printed;
    }
  };
  try {
    await Promise.all(
      scopes.map(async (watched) => {
        try {
          await watch(watched);
        } catch (error) {
          if (!ended.signal.aborted && scopes.length > 1)
            say(`Can't watch${watchedName(watched)}.`);
          ended.abort();
          throw error;
        }
      }),
    );
    if (ended.signal.aborted) return;
    missing.signal.throwIfAborted();
  } finally {
    timer.cancel();
    stopListening();
  }
}

function watchedName({ name }: WatchedScope): string {
  return name === undefined ? "" : ` ${name}`;
}

function eventTypes(text: string): readonly EventType[] {
  return text.split(",").map((name) => {
    const type = name.trim().toUpperCase();
    if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") return type;
    throw new InvalidArgumentError("The types are added, modified and deleted.");
  });
}

function batchPrinter(
  { output, io }: Session,
  format: Format,
  hasName: boolean,
): (batch: AtomicBatch, watched: WatchedScope) => Promise<void> {
  switch (format) {
    case "json":
      return async (batch, { resource, scope, name }) => {
        const watch = name === undefined ? {} : { watch: { resource, ...scope } };
        for (const line of batchJson(batch, undefined, watch)) await output.write(line);
      };
    case "table": {
      const headings = ["REVISION", "EVENT", "KEY", "VALUE"];
      const widths = [0, "MODIFIED".length];
      const table = new Table(hasName ? ["SCOPE", ...headings] : headings, {
        ...tableOptions(io),
        widths: hasName ? [0, ...widths] : widths,
      });
      return async ({ events }, { name }) => {
        if (events.length === 0) return;
        const rows = events.map(eventRow);
        await output.write(
          table.format(name === undefined ? rows : rows.map((row) => [name, ...row])),
        );
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
