import { type Command, InvalidArgumentError, Option } from "commander";
import type { z } from "zod";
import { WatchFanoutError } from "../../base/errors.ts";
import { shardOf } from "../../client/calls/encode.ts";
import type { ViewOptions as GivenView, HashRange, KeyRange } from "../../client/calls/options.ts";
import { parseAddress } from "../../client/transport/address.ts";
import { count, duration } from "../../config/value-types.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { ListOrder, RevisionRequirement } from "../../storage/storage.ts";
import { addContextOptions } from "../contexts/use-context.ts";
import { asOutputFormat, type Format } from "./decoded/output-format.ts";
import type { MessageOptions } from "./decoded/value-decoder.ts";

/** The options of every client command. */
export interface ClientOptions extends MessageOptions {
  readonly address: readonly string[];
  readonly resource: string;
  readonly output: Format;
  /** Milliseconds. */
  readonly timeout: number;
  readonly tls?: true;
  readonly tlsCa?: string;
  readonly tlsClientCert?: string;
  readonly tlsClientKey?: string;
  readonly tlsServerName?: string;
  readonly bearerTokenFile?: string;
  /** Of the context: it has no flag. */
  readonly bearerToken?: string;
}

export function addClientOptions(command: Command): Command {
  return addContextOptions(command)
    .addOption(new Option("-r, --resource <name>", "name of the resource").default("default"))
    .addOption(
      asOutputFormat(
        fromEnvironment(
          "-o, --output <format>",
          "value: the value's bytes only; yaml, jsonpath=TEMPLATE, columns=HEADING:PATH,...: decoded",
        ),
      ).default("table"),
    )
    .addOption(
      fromEnvironment(
        "--descriptors <file>",
        "descriptor set of protobuf values, to show them decoded",
      ),
    )
    .addOption(
      fromEnvironment(
        "--message <[resource=]type,...>",
        "their message type, such as acme.v1.Pod, for --descriptors",
      ).argParser(messageTypes),
    )
    .addOption(
      fromEnvironment("--address <host:port,...>", "address of the service; one of several is used")
        .argParser(addresses)
        .default(["127.0.0.1:50051"], "127.0.0.1:50051"),
    )
    .addOption(
      fromEnvironment("--timeout <duration>", "how long to wait for a response")
        .argParser(parseWith(duration("1ms")))
        .default(10_000, "10s"),
    )
    .addOption(new Option("--tls", "use TLS; implied by the other TLS options"))
    .addOption(
      fromEnvironment(
        "--tls-ca <file>",
        "authorities to trust, in PEM (default: those of Node.js)",
      ),
    )
    .addOption(fromEnvironment("--tls-client-cert <file>", "client certificate, in PEM"))
    .addOption(
      fromEnvironment("--tls-client-key <file>", "private key of --tls-client-cert, in PEM"),
    )
    .addOption(
      fromEnvironment(
        "--bearer-token-file <file>",
        "token to authenticate with (or the variable WATCH_FANOUT_BEARER_TOKEN)",
      ),
    )
    .addOption(
      fromEnvironment("--tls-server-name <name>", "name to verify in the server's certificate"),
    );
}

/** Parses message types: of a resource, or of those that are not named. */
function messageTypes(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split(",").map((part) => {
      const at = part.indexOf("=");
      return [at === -1 ? "" : part.slice(0, at), part.slice(at + 1)] as const;
    }),
  );
}

/** An option that is also the variable WATCH_FANOUT_NAME. An empty variable counts as absent. */
function fromEnvironment(flags: string, description: string): Option {
  const option = new Option(flags, description);
  const variable = `WATCH_FANOUT_${option.name().toUpperCase().replaceAll("-", "_")}`;
  return process.env[variable] === "" ? option : option.env(variable);
}

/** A parser for commander, from a type of option values. */
export function parseWith<T>(type: z.ZodType<T>): (text: string) => T {
  return (text) => {
    const result = type.safeParse(text);
    if (result.success) return result.data;
    throw new InvalidArgumentError(`It ${result.error.issues[0]?.message ?? "is not valid"}.`);
  };
}

function addresses(text: string): readonly string[] {
  const all = text.split(",").map((address) => address.trim());
  for (const address of all) {
    try {
      parseAddress(address);
    } catch (error) {
      throw error instanceof WatchFanoutError ? new InvalidArgumentError(error.message) : error;
    }
  }
  return all;
}

/** Parses a whole number from 0 up, such as a revision. */
export const wholeNumber: (text: string) => number = parseWith(count(0));

/** A parser of whole numbers from `least` to `most`. */
export function wholeNumberIn(least: number, most: number): (text: string) => number {
  return (text) => {
    const parsed = wholeNumber(text);
    if (parsed >= least && parsed <= most) return parsed;
    throw new InvalidArgumentError(`It is from ${least} to ${most}.`);
  };
}

/** Parses a lease id of 63 bits: decimal, or hexadecimal with 0x. etcdctl prints it in hexadecimal without 0x. */
export function leaseId(text: string): bigint {
  const id = /^(?:\d+|0x[0-9a-f]+)$/i.test(text) ? BigInt(text) : 0n;
  if (id >= 1n && id < 2n ** 63n) return id;
  throw new InvalidArgumentError(
    "A lease id is a whole number from 1 to 2^63-1; hexadecimal numbers begin with 0x.",
  );
}

/** Parses a TTL, in milliseconds. */
export const timeToLive: (text: string) => number = parseWith(duration("1ms"));

/** The history of the revisions on the command line. */
export interface HistoryOptions {
  readonly historyId?: string;
}

export function addHistoryOption(command: Command): Command {
  return command.option(
    "--history-id <id>",
    "history_id of the revision, as -o json prints it: fail in another history",
  );
}

/** Help of the argument of `list` and `watch`. */
export const prefixHelp = "only keys with this prefix, such as ns-1/ (default: all)";

/** The prefix from the argument or from --prefix. Ends the command with a usage error if they differ. */
export function prefixOf(
  command: Command,
  argument: string | undefined,
  option: string | undefined,
): string | undefined {
  if (argument !== undefined && option !== undefined && argument !== option) {
    usageError(command, `--prefix can't be used with another prefix, ${JSON.stringify(argument)}.`);
  }
  return argument ?? option;
}

/** A range of keys. */
export interface RangeOptions {
  readonly from?: string;
  readonly to?: string;
}

export function addRangeOptions(command: Command): Command {
  return command
    .option("--from <key>", "only keys from this one on, by their bytes")
    .option("--to <key>", "only keys below this one");
}

/** The range as the client's options; undefined: all keys. Ends the command with a usage error if it has no keys. */
export function rangeOf(command: Command, { from, to }: RangeOptions): KeyRange | undefined {
  if (from === undefined && to === undefined) return undefined;
  // An empty end is no bound.
  if (from !== undefined && to !== undefined && to !== "" && compareKeys(from, to) >= 0) {
    const [start, end] = [JSON.stringify(from), JSON.stringify(to)];
    usageError(
      command,
      `--from ${start} is not below --to ${end}, so there are no keys between them.`,
    );
  }
  return { startKey: from, endKey: to };
}

/** The orders of a list, by their names on the command line. */
const orders: Readonly<Record<string, ListOrder>> = {
  "key-ascending": "KEY_ASCENDING",
  "key-descending": "KEY_DESCENDING",
  "mod-revision-ascending": "MOD_REVISION_ASCENDING",
  "mod-revision-descending": "MOD_REVISION_DESCENDING",
  "create-revision-ascending": "CREATE_REVISION_ASCENDING",
  "create-revision-descending": "CREATE_REVISION_DESCENDING",
};

export function orderOption(): Option {
  return new Option("--order <order>", "order of the objects")
    .choices(Object.keys(orders))
    .default("key-ascending");
}

export function orderOf(name: string): ListOrder {
  return orders[name] ?? "KEY_ASCENDING";
}

/** The selectors of objects. */
export interface SelectorOptions {
  readonly selector?: string;
  readonly fieldSelector?: string;
}

export function addSelectorOptions(command: Command): Command {
  return command
    .option(
      "-l, --selector <selector>",
      "only objects with these labels: app=web,tier in (a, b),!x",
    )
    .option(
      "--field-selector <selector>",
      "only objects with these fields: spec.node=n1,phase!=Failed",
    );
}

/** What of each object is shown. */
export interface ViewOptions {
  readonly keysOnly?: true;
  readonly attributes?: true;
  readonly readMask?: readonly string[];
}

export function addViewOptions(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--keys-only",
        "without the values, which the service does not send then",
      ).conflicts(["attributes", "readMask"]),
    )
    .addOption(
      new Option("--attributes", "labels and declared fields in place of the values").conflicts(
        "readMask",
      ),
    )
    .option(
      "--read-mask <path,...>",
      "only these parts of the values: spec.node,metadata.labels",
      (text) => text.split(","),
    );
}

/** Which part of the keys is shown. */
export interface ShardOptions {
  readonly shard?: readonly HashRange[];
}

export function addShardOption(command: Command): Command {
  return command.option(
    "--shard <i/n>",
    "only the i-th of n parts of the keys, such as 1/3",
    shard,
  );
}

/** Parses a part of all keys, counted from 1. */
function shard(text: string): readonly HashRange[] {
  const [, index = 0, count = 0] = (/^(\d{1,6})\/(\d{1,6})$/.exec(text) ?? []).map(Number);
  if (index >= 1 && index <= count) return shardOf(index - 1, count);
  throw new InvalidArgumentError("A part is i/n with i from 1 to n, such as 1/3.");
}

/** What is shown, as the client's options. */
export function viewOf({ keysOnly, attributes, readMask }: ViewOptions): GivenView {
  if (keysOnly === true) return { view: "KEYS" };
  return attributes === true ? { view: "ATTRIBUTES" } : { readMask };
}

/** The selectors as the client's options. */
export function selectorsOf({ selector, fieldSelector }: SelectorOptions): {
  readonly labelSelector: string | undefined;
  readonly fieldSelector: string | undefined;
} {
  return { labelSelector: selector, fieldSelector };
}

/** The revision requirement of a read. */
export interface RevisionOptions extends HistoryOptions {
  readonly at?: number;
  readonly revision?: number;
  readonly revisionMatch?: "linearizable" | "any" | "not-older-than" | "exact";
}

export function addRevisionOptions(command: Command): Command {
  return addHistoryOption(command)
    .addOption(
      new Option(
        "--revision <revision>",
        "read at this revision, subject to --revision-match",
      ).argParser(wholeNumber),
    )
    .addOption(
      new Option("--at <revision>", "the state of this revision")
        .argParser(wholeNumber)
        .conflicts(["revision", "revisionMatch"]),
    )
    .addOption(
      new Option(
        "--revision-match <match>",
        "how recent the response must be (default: exact with --revision, otherwise linearizable)",
      ).choices(["linearizable", "any", "not-older-than", "exact"]),
    );
}

/** The revision requirement. Ends the command with a usage error if the two options are inconsistent. */
export function revisionRequirement(
  command: Command,
  { at, revision, revisionMatch }: RevisionOptions,
): RevisionRequirement {
  if (at !== undefined) {
    if (at < 1) usageError(command, "--at must be at least 1.");
    return { match: "EXACT", revision: at };
  }
  const match = revisionMatch ?? (revision === undefined ? "linearizable" : "exact");
  if (match === "not-older-than" || match === "exact") {
    if (revision === undefined) usageError(command, `--revision-match ${match} needs --revision.`);
    if (revision < 1) usageError(command, "--revision must be at least 1.");
    return { match: match === "exact" ? "EXACT" : "NOT_OLDER_THAN", revision };
  }
  if (revision !== undefined) {
    usageError(command, `--revision can't be used with --revision-match ${match}.`);
  }
  return { match: match === "any" ? "ANY" : "LINEARIZABLE" };
}

/** Ends the command with a usage error if its output has no such format. */
export function requireFormat(
  command: Command,
  { output }: ClientOptions,
  formats: readonly Format[],
): void {
  if (formats.includes(output)) return;
  usageError(command, `--output must be one of ${formats.join(", ")} for this command.`);
}

/** Prints a usage error and ends the command. */
export function usageError(command: Command, message: string): never {
  return command.error(`error: ${message}`);
}
