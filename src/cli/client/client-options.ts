import { type Command, InvalidArgumentError, Option } from "commander";
import type { z } from "zod";
import { WatchFanoutError } from "../../base/errors.ts";
import { parseAddress } from "../../client/calls/address.ts";
import { count, duration } from "../../config/value-types.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";

export type Format = "json" | "table" | "value";

/** What every client command takes. */
export interface ClientOptions {
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
}

export function addClientOptions(command: Command): Command {
  return command
    .addOption(
      new Option("-r, --resource <name>", "the resource that the object is in").default("default"),
    )
    .addOption(
      fromEnvironment("-o, --output <format>", "json, table or value (the bare value)")
        .choices(["json", "table", "value"])
        .default("table"),
    )
    .addOption(
      fromEnvironment(
        "--address <host:port,...>",
        "where the service is; of several, any may be used",
      )
        .argParser(addresses)
        .default(["127.0.0.1:50051"], "127.0.0.1:50051"),
    )
    .addOption(
      fromEnvironment("--timeout <duration>", "how long to wait for an answer")
        .argParser(parseWith(duration("1ms")))
        .default(10_000, "10s"),
    )
    .addOption(new Option("--tls", "use TLS; the other options for TLS turn it on as well"))
    .addOption(
      fromEnvironment("--tls-ca <file>", "the authorities to trust, PEM (default: Node.js's)"),
    )
    .addOption(fromEnvironment("--tls-client-cert <file>", "the client's own certificate, PEM"))
    .addOption(
      fromEnvironment("--tls-client-key <file>", "the private key of --tls-client-cert, PEM"),
    )
    .addOption(
      fromEnvironment("--tls-server-name <name>", "the name that the server's certificate is for"),
    );
}

/** An option that may also be given as WATCH_FANOUT_NAME. An empty variable counts as not set. */
function fromEnvironment(flags: string, description: string): Option {
  const option = new Option(flags, description);
  const variable = `WATCH_FANOUT_${option.name().toUpperCase().replaceAll("-", "_")}`;
  return process.env[variable] === "" ? option : option.env(variable);
}

/** commander's parser of an option's value, from a type of option values. */
function parseWith<T>(type: z.ZodType<T>): (text: string) => T {
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

/** A revision, or another number that counts from 0. */
export const wholeNumber: (text: string) => number = parseWith(count(0));

/** A lease id, which uses 63 bits: decimal, or hexadecimal with 0x, as etcdctl prints it without. */
export function leaseId(text: string): bigint {
  const id = /^(?:\d+|0x[0-9a-f]+)$/i.test(text) ? BigInt(text) : 0n;
  if (id >= 1n && id < 2n ** 63n) return id;
  throw new InvalidArgumentError(
    "A lease id is a whole number from 1 to 2^63-1; write 0x in front of a hexadecimal one.",
  );
}

/** How long an object is to live, in milliseconds. */
export const timeToLive: (text: string) => number = parseWith(duration("1ms"));

/** What names the history that the revisions on the command line come from. */
export interface HistoryOptions {
  readonly historyId?: string;
}

export function addHistoryOption(command: Command): Command {
  return command.option(
    "--history-id <id>",
    "the history that the revision is of, as -o json names it: fail if etcd has another now",
  );
}

/** What picks objects by their content. */
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

/** As the client takes them. */
export function selectorsOf({ selector, fieldSelector }: SelectorOptions): {
  readonly labelSelector: string | undefined;
  readonly fieldSelector: string | undefined;
} {
  return { labelSelector: selector, fieldSelector };
}

/** What a read takes to say how new its answer has to be. */
export interface RevisionOptions extends HistoryOptions {
  readonly revision?: number;
  readonly revisionMatch?: "linearizable" | "any" | "not-older-than" | "exact";
}

export function addRevisionOptions(command: Command): Command {
  return addHistoryOption(command)
    .addOption(
      new Option(
        "--revision <revision>",
        "read the state at this revision, or as --revision-match says",
      ).argParser(wholeNumber),
    )
    .addOption(
      new Option(
        "--revision-match <match>",
        "how new the answer has to be; any: whatever the cache holds (default: exact with --revision, otherwise linearizable)",
      ).choices(["linearizable", "any", "not-older-than", "exact"]),
    );
}

/** Ends the command with a usage error where the two options do not go together. */
export function revisionRequirement(
  command: Command,
  { revision, revisionMatch }: RevisionOptions,
): RevisionRequirement {
  const match = revisionMatch ?? (revision === undefined ? "linearizable" : "exact");
  if (match === "not-older-than" || match === "exact") {
    if (revision === undefined) usageError(command, `--revision-match ${match} needs --revision.`);
    if (revision < 1) usageError(command, "--revision begins at 1.");
    return { match: match === "exact" ? "EXACT" : "NOT_OLDER_THAN", revision };
  }
  if (revision !== undefined) {
    usageError(command, `--revision does not go with --revision-match ${match}.`);
  }
  return { match: match === "any" ? "ANY" : "LINEARIZABLE" };
}

/** Says what is wrong with the options and ends the command. */
export function usageError(command: Command, message: string): never {
  return command.error(`error: ${message}`);
}
