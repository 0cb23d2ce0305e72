import { type Command, InvalidArgumentError, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { KeyRange } from "../../client/calls/options.ts";
import type { AtomicBatch } from "../../client/watch/client-calls.ts";
import type { EventType, WatchEvent } from "../../model/event.ts";
import type { Scope } from "../../storage/storage.ts";
import { isGiven } from "../contexts/use-context.ts";
import { type CommandIo, tableOptions } from "../output/command-io.ts";
import { printableBytes, printableText } from "../output/printable.ts";
import { type Cell, type Colour, Table } from "../output/table.ts";
import {
  addClientOptions,
  addHistoryOption,
  addRangeOptions,
  addSelectorOptions,
  addShardOption,
  addViewOptions,
  type ClientOptions,
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
import { DecodedPrinter } from "./decoded/decoded-printer.ts";
import { isDecoded } from "./decoded/output-format.ts";
import { batchJson, printValueLine, shownBytes } from "./object-output.ts";
import { addStaleOption, checkAge, type StaleOptions } from "./staleness.ts";

interface WatchOptions
  extends ClientOptions,
    SelectorOptions,
    HistoryOptions,
    StaleOptions,
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
    .addOption(
      new Option("--previous", "print the previous object with each event; not in a table"),
    );
  addRangeOptions(command);
  addShardOption(addViewOptions(addSelectorOptions(addScopeOptions(command)))).option(
    "--event-types <type,...>",
    "only these events: added, modified, deleted",
    eventTypes,
  );
  const all = addStaleOption(addHistoryOption(addClientOptions(command)), ["afterRevision"]);
  all.action(async (argument: string | undefined, given: WatchOptions) => {
    const prefix = prefixOf(command, argument, given.prefix);
    const options = { ...given, ...(prefix !== undefined && { prefix }) };
    if (options.key !== undefined && prefix !== undefined) {
      usageError(command, "--key and --prefix can't be used together.");
    }
    if (options.previous === true && (options.output === "table" || options.output === "value")) {
      usageError(command, "--previous needs -o json, or another format that shows it.");
    }
    const scopes = scopesOf(command, options);
    const range = rangeOf(command, options);
    if (range !== undefined && scopes.some(({ scope }) => scope !== undefined)) {
      usageError(command, "--from and --to can't be used with --key, --prefix or --scope.");
    }
    await runSession(io, options, (session) => watchAll(session, options, scopes, range));
  });
}

/** Watches the scopes until interrupted, on one stream. The first watch that ends with an error ends all of them. */
async function watchAll(
  session: Session,
  options: WatchOptions,
  scopes: readonly WatchedScope[],
  range: KeyRange | undefined,
): Promise<void> {
  const { client, output, io, say } = session;
  const print = await batchPrinter(session, options, scopes);
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
  // The events of one batch are printed together.
  let printed = Promise.resolve();
  const watch = async (watched: WatchedScope): Promise<void> => {
    const begin = await startOf(session, options, watched, range, signal);
    const batches = calls.watch(watched.resource, {
      ...selectorsOf(options),
      ...viewOf(options),
      shard: options.shard,
      eventTypes: options.eventTypes,
      scope: watched.scope,
      range,
      ...begin,
      sendInitialEvents: options.initial,
      delivery: options.latest === true ? "LATEST_STATE" : undefined,
      includePrevious: options.previous,
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
          throw withHint(error, watched);
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

/** Where a watch begins. With --max-stale: at the revision that the service has in memory. */
async function startOf(
  { client, say }: Session,
  options: WatchOptions,
  { resource, scope }: WatchedScope,
  range: KeyRange | undefined,
  signal: AbortSignal,
): Promise<{
  readonly afterRevision?: number | undefined;
  readonly historyId?: string | undefined;
}> {
  const { afterRevision, historyId, maxStale } = options;
  if (maxStale === undefined) return { afterRevision, historyId };
  const prefix = scope !== undefined && "key" in scope ? scope.key : scope?.prefix;
  const page = await client.page(resource, {
    ...{ prefix, ...range, pageSize: 1, view: "KEYS", at: { match: "ANY" } },
    ...{ historyId, signal },
  });
  checkAge(say, page.staleForMs, options);
  return { afterRevision: page.revision, historyId: page.historyId };
}

/** The error for `--scope key=a`, unless there is a resource with that name, says what may have been meant. */
function withHint(error: unknown, { resource, name }: WatchedScope): unknown {
  const isKeyword = name !== undefined && (resource === "key" || resource === "prefix");
  if (!isKeyword || !hasReason(error, "UNKNOWN_RESOURCE")) return error;
  const flag = resource === "key" ? "--scope-key RESOURCE=KEY" : "--scope RESOURCE=PREFIX";
  const hint = `A scope begins with the name of its resource: ${flag}.`;
  return new WatchFanoutError(error.reason, `${error.message} ${hint}`, { cause: error });
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

async function batchPrinter(
  session: Session,
  options: WatchOptions,
  scopes: readonly WatchedScope[],
): Promise<(batch: AtomicBatch, watched: WatchedScope) => Promise<void>> {
  const { output, io } = session;
  const { output: format } = options;
  const hasName = scopes[0]?.name !== undefined;
  if (isDecoded(format)) {
    const resources = scopes.map(({ resource }) => resource);
    const printer = await DecodedPrinter.open(session, { ...options, output: format }, resources);
    return ({ events }, { resource }) =>
      printer.printEvents(resource, events, hasName ? { resource } : {});
  }
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

/** What one watch of the command is of. */
export interface WatchedScope {
  readonly resource: string;
  /** Undefined: all keys. */
  readonly scope: Scope | undefined;
  /** How it is named in the output, such as pods=ns-1/; undefined: it is not, as it can be no other. */
  readonly name: string | undefined;
}

interface ScopeOptions {
  readonly resource: string;
  readonly key?: string;
  readonly prefix?: string;
  readonly scope?: readonly WatchedScope[];
  readonly scopeKey?: readonly WatchedScope[];
}

/** Adds --scope and --scope-key, which may be repeated. */
export function addScopeOptions(command: Command): Command {
  return command
    .option(
      "--scope <resource=prefix>",
      "watch this prefix of this resource; repeatable, on one stream",
      scopeReader((prefix) => ({ prefix })),
    )
    .option(
      "--scope-key <resource=key>",
      "the same for one object",
      scopeReader((key) => {
        if (key === "") throw new InvalidArgumentError("The key is empty.");
        return { key };
      }),
    );
}

/** The scopes to watch. Ends the command with a usage error if they are given in both ways. */
export function scopesOf(command: Command, options: ScopeOptions): readonly WatchedScope[] {
  const { resource, key, prefix, scope = [], scopeKey = [] } = options;
  const scopes = [...scope, ...scopeKey];
  if (scopes.length === 0) {
    const only = key !== undefined ? { key } : prefix === undefined ? undefined : { prefix };
    return [{ resource, scope: only, name: undefined }];
  }
  if (isGiven(command, "resource") || key !== undefined || prefix !== undefined) {
    usageError(
      command,
      "--scope and --scope-key name the resource: leave out --resource, --key and the prefix, or use another --scope for them.",
    );
  }
  return scopes;
}

function scopeReader(scopeOf: (text: string) => Scope) {
  return (text: string, before: readonly WatchedScope[] = []): readonly WatchedScope[] => {
    const end = text.indexOf("=");
    if (end <= 0)
      throw new InvalidArgumentError("Write it as RESOURCE=PREFIX, such as pods=ns-1/.");
    const scope = scopeOf(text.slice(end + 1));
    return [...before, { resource: text.slice(0, end), scope, name: printableText(text) }];
  };
}
