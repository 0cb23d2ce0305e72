import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { type Reason, upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { Interruption } from "../../client/calls/options.ts";
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
  addSelectorOptions,
  type ClientOptions,
  type Format,
  type HistoryOptions,
  prefixHelp,
  prefixOf,
  type SelectorOptions,
  selectorsOf,
  usageError,
  wholeNumber,
} from "./client-options.ts";
import { runSession, type Session } from "./client-session.ts";
import { printValueLine } from "./object-output.ts";

interface WatchOptions extends ClientOptions, SelectorOptions, HistoryOptions {
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
  addSelectorOptions(command);
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
    await runSession(io, options, (session) => watch(session, options));
  });
}

async function watch(session: Session, options: WatchOptions): Promise<void> {
  const { client, output, io, say } = session;
  const interrupted = new AbortController();
  const stopListening = io.onInterrupt(() => interrupted.abort());
  const first = new FirstResponse(options.timeout);
  const outage = new Outage(say);
  try {
    const batches = client.watch(options.resource, {
      ...selectorsOf(options),
      scope: scopeOf(options),
      afterRevision: options.afterRevision,
      sendInitialEvents: options.initial,
      delivery: options.latest === true ? "LATEST_STATE" : undefined,
      includePrevious: options.previous,
      historyId: options.historyId,
      signal: AbortSignal.any([interrupted.signal, output.failed, first.missing]),
      onOpened: () => {
        first.arrived();
        outage.ended();
      },
      onInterruption: (interruption) => {
        first.failed(interruption.error);
        outage.attemptFailed(interruption);
      },
    });
    const print = batchPrinter(session, options.output);
    for await (const batch of batches) await print(batch);
    if (interrupted.signal.aborted) return;
    first.missing.throwIfAborted();
  } finally {
    first.stop();
    stopListening();
  }
}

/** The time limit of a watch's first response. Later responses are not limited. */
class FirstResponse {
  readonly #missing = new AbortController();
  readonly #timer: { cancel(): void };
  #error: WatchFanoutError | undefined;

  constructor(timeoutMs: number) {
    this.#timer = systemClock.setTimeout(() => {
      const error = upstreamUnavailable(`No response arrived within ${timeoutMs / 1000} s.`);
      this.#missing.abort(this.#error ?? error);
    }, timeoutMs);
  }

  /** Aborted, with the last failure as its reason, if no response arrived in time. */
  get missing(): AbortSignal {
    return this.#missing.signal;
  }

  /** A stream has sent its first response. */
  arrived(): void {
    this.#timer.cancel();
  }

  failed(error: WatchFanoutError): void {
    this.#error = error;
  }

  stop(): void {
    this.#timer.cancel();
  }
}

/** Reports when the stream is lost and when it is back: attempts in between only if they fail for another reason. */
class Outage {
  readonly #say: (message: string) => void;
  /** Of the last failure; undefined while there is a stream. */
  #reason: Reason | undefined;

  constructor(say: (message: string) => void) {
    this.#say = say;
  }

  attemptFailed({ error, resumeRevision }: Interruption): void {
    if (error.reason === this.#reason) return;
    this.#reason = error.reason;
    const from = resumeRevision === undefined ? "" : ` after revision ${resumeRevision}`;
    this.#say(`${error.message} Retrying to resume${from}.`);
  }

  ended(): void {
    if (this.#reason === undefined) return;
    this.#reason = undefined;
    this.#say("The watch has resumed.");
  }
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

const colours: Readonly<Record<EventType, Colour>> = {
  ADDED: "green",
  MODIFIED: "yellow",
  DELETED: "red",
};

function eventRow({ type, object }: WatchEvent): Cell[] {
  return [
    String(object.modRevision),
    { text: type, colour: colours[type] },
    printableText(object.key),
    printableBytes(object.value),
  ];
}
