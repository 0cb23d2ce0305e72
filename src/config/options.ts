import type { z } from "zod";
import { resource } from "./resource-settings.ts";
import { choice, count, duration, endpoint, listenAddress, size, text } from "./value-types.ts";

/** What is known of one option. Flags, variables, keys of the file, help and checks all follow from it. */
export interface OptionDefinition {
  /** One value; of a list, one element. */
  readonly schema: z.ZodType;
  /** What stands for the value in help. */
  readonly value: string;
  /** A sentence or two, without the default. */
  readonly help: string;
  /** As it would be typed. Without one the option is absent unless given. */
  readonly default?: string;
  /** What the help says of the default where it is not one value. */
  readonly defaultHelp?: string;
  /**
   * A flag that repeats, a variable with commas between, a sequence in the file. "commas": they
   * separate in flags and in the file too.
   */
  readonly list?: "commas" | "repeated";
  /** What the file calls it where that is not the option's name. */
  readonly fileKey?: string;
  /** Not to be shown in any message, and no flag: other users of a machine can see flags. */
  readonly secret?: true;
}

/**
 * Every option of `serve`, by its name: `--NAME` as a flag, `WATCH_FANOUT_NAME` (upper case, `_` for
 * `-`) in the environment and `NAME` in the file.
 */
export const options = {
  etcd: {
    schema: endpoint,
    list: "commas",
    value: "URL[,URL...]",
    help: "The client URLs of etcd's members, all http or all https; the port is 2379 unless given.",
    defaultHelp: "an embedded store in memory",
  },
  resource: {
    schema: resource,
    list: "repeated",
    fileKey: "resources",
    value: "NAME=PREFIX",
    help:
      "A resource to serve: the keys that begin with PREFIX, which usually ends in '/'. Repeatable. " +
      "Prefixes do not overlap. Required with --etcd. In the file a resource can have more: a codec, " +
      "labels and fields to select by, indexes, an event window of its own, no cache.",
    defaultHelp: "with the embedded store, default= (every key)",
  },
  listen: {
    schema: listenAddress,
    value: "HOST:PORT",
    help: "Where to serve gRPC. Port 0 is any free one.",
    default: "127.0.0.1:50051",
  },
  admin: {
    schema: listenAddress,
    value: "HOST:PORT",
    help: "Where to serve /livez, /readyz and /metrics, over HTTP and without a password.",
    default: "127.0.0.1:8080",
  },
  "tls-cert": {
    schema: text,
    value: "FILE",
    help: "The server's certificate and its chain, PEM. With --tls-key it turns TLS on.",
  },
  "tls-key": { schema: text, value: "FILE", help: "The private key of --tls-cert, PEM." },
  "tls-client-ca": {
    schema: text,
    value: "FILE",
    help: "Accept only clients with a certificate from these authorities (mTLS), PEM.",
  },
  "etcd-username": { schema: text, value: "NAME", help: "The etcd user to act as." },
  "etcd-password": {
    schema: text,
    secret: true,
    value: "PASSWORD",
    help: "The etcd user's password.",
  },
  "etcd-password-file": {
    schema: text,
    value: "FILE",
    help: "Holds the etcd user's password; a line break at its end is not part of it.",
  },
  "etcd-ca": {
    schema: text,
    value: "FILE",
    help: "The authorities that etcd's certificates come from, PEM.",
    defaultHelp: "those that Node.js trusts",
  },
  "etcd-cert": {
    schema: text,
    value: "FILE",
    help: "This service's certificate towards etcd, PEM.",
  },
  "etcd-key": { schema: text, value: "FILE", help: "The private key of --etcd-cert, PEM." },
  "etcd-history-key": {
    schema: text,
    value: "KEY",
    help:
      "The key in etcd that holds the id of its history, the same for all replicas. It is never part " +
      "of a resource.",
    default: "/watchfanout/history",
  },
  "event-window-age": {
    schema: duration("1s"),
    value: "DURATION",
    help: "Keep events in a resource's event window for this long, as far as the other bounds allow.",
    default: "5m",
  },
  "event-window-min-events": {
    schema: count(0),
    value: "COUNT",
    help: "Keep this many events of each resource however old they are.",
    default: "1000",
  },
  "event-window-max-events": {
    schema: count(1),
    value: "COUNT",
    help: "Keep at most this many events of each resource.",
    default: "100000",
  },
  "event-window-max-bytes": {
    schema: size,
    value: "SIZE",
    help: "Keep at most this many bytes of events of each resource.",
    default: "64MiB",
  },
  "stall-timeout": {
    schema: duration("1s"),
    value: "DURATION",
    help: "End a stream whose client has taken nothing for this long.",
    default: "60s",
  },
  "max-stream-age": {
    schema: duration("0s"),
    value: "DURATION",
    help:
      "End connections and streams in order when they are about this old, so that load spreads over " +
      "replicas. 0s: never.",
    default: "1h",
  },
  "max-streams": {
    schema: count(1),
    value: "COUNT",
    help:
      "How many streams may be open on this server: watches, health watches, reflection. One more is refused, or " +
      "takes the place of one of the connection that has most.",
    default: "200000",
  },
  "consistency-interval": {
    schema: duration("0s"),
    value: "DURATION",
    help: "Compare each cache with etcd about this often, by keys and revisions. 0s: never.",
    default: "10m",
  },
  "shutdown-timeout": {
    schema: duration("0s"),
    value: "DURATION",
    help: "How long clients have to take their last responses after SIGTERM or SIGINT.",
    default: "10s",
  },
  "log-level": {
    schema: choice(["trace", "debug", "info", "warn", "error", "fatal", "silent"]),
    value: "LEVEL",
    help: "Log this and what is more severe: trace, debug, info, warn, error, fatal or silent.",
    default: "info",
  },
  "log-format": {
    schema: choice(["text", "json"]),
    value: "FORMAT",
    help: "How to write the log, which goes to stderr: text or json.",
    defaultHelp: "text on a terminal, otherwise json",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

export type OptionName = keyof typeof options;

export const optionNames = Object.keys(options) as OptionName[];

/** The definition of an option, as the general type. */
export function definition(name: OptionName): OptionDefinition {
  return options[name];
}

export function flagOf(name: string): string {
  return `--${name}`;
}

export const variablePrefix = "WATCH_FANOUT_";

export function variableOf(name: string): string {
  return variablePrefix + name.toUpperCase().replaceAll("-", "_");
}

export function fileKeyOf(name: OptionName): string {
  return definition(name).fileKey ?? name;
}

type ValueOf<D> = D extends { readonly schema: z.ZodType<infer T> }
  ? D extends { readonly list: string }
    ? readonly T[]
    : D extends { readonly default: string }
      ? T
      : T | undefined
  : never;

/** The value of every option. A list that was not given is empty. */
export type OptionValues = {
  readonly [Name in OptionName]: ValueOf<(typeof options)[Name]>;
};
