import { dataOptions } from "./data-options.ts";
import { etcdOptions } from "./etcd-options.ts";
import { limitOptions } from "./limit-options.ts";
import { listenerOptions } from "./listener-options.ts";
import {
  countOption,
  durationOption,
  fileOption,
  type OptionDefinition,
  sizeOption,
  switchOption,
  type ValuesOf,
} from "./option-definition.ts";
import { resource } from "./resource-settings.ts";
import {
  choice,
  collectorUrl,
  endpoint,
  ratio,
  text,
  upstreamAddress,
  workerCount,
} from "./value-types.ts";
import { xdsOptions } from "./xds-options.ts";

/** The options of tokens, rights and the audit log. */
const callerOptions = {
  "token-file": {
    ...fileOption,
    help: "Static tokens, sha256:HEX NAME[,GROUP...] a line. `watch-fanout token hash` prints the first part for a token.",
  },
  "jwt-issuer": {
    schema: text,
    value: "URL",
    help: "Accept JSON Web Tokens of this issuer (claim iss). Needs --jwt-audience and --jwt-jwks.",
  },
  "jwt-audience": {
    schema: text,
    value: "NAME",
    help: "Audience (claim aud) that a token must have.",
  },
  "jwt-jwks": {
    schema: text,
    value: "FILE|URL",
    help: "Public keys of the issuer, a JSON Web Key Set.",
  },
  "jwt-groups-claim": {
    schema: text,
    value: "NAME",
    help: "Claim with the caller's groups, a list of texts.",
    default: "groups",
  },
  insecure: {
    ...switchOption,
    help: "Permit plain text, and an admin port without a token, on addresses that other machines can reach.",
    default: "off",
  },
  policy: {
    ...fileOption,
    help: "What callers may do: a YAML file with roles and bindings. What it does not allow is denied.",
    defaultHelp: "every caller may do everything",
  },
  "audit-log": {
    schema: text,
    value: "FILE|-",
    help: "Append a line of JSON for each denied call and each write; -: to standard output.",
    defaultHelp: "calls are not audited",
  },
  "audit-level": {
    schema: choice(["writes", "reads", "all"]),
    value: "LEVEL",
    help: "Allowed calls in --audit-log: writes; reads, which adds Get, List and Watch; or all.",
    default: "writes",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

/** The options of the log, and of what is exported by OTLP. */
const telemetryOptions = {
  "otlp-endpoint": {
    schema: collectorUrl,
    value: "URL|env",
    help:
      "Export spans and metrics to this OpenTelemetry collector, by OTLP over HTTP; env: to that of " +
      "OTEL_EXPORTER_OTLP_ENDPOINT.",
    defaultHelp: "nothing is exported",
  },
  "trace-ratio": {
    schema: ratio,
    value: "RATIO",
    help: "Part of the calls without traceparent that are traced, from 0 to 1. Needs --otlp-endpoint.",
    default: "0",
  },
  "otlp-metrics-interval": {
    ...durationOption("0s"),
    help: "Interval at which metrics are exported. 0s: never. Needs --otlp-endpoint.",
    default: "60s",
  },
  "log-level": {
    schema: choice(["trace", "debug", "info", "warn", "error", "fatal", "silent"]),
    value: "LEVEL",
    help: "Least severe level to log: trace, debug, info, warn, error, fatal or silent.",
    default: "info",
  },
  "log-format": {
    schema: choice(["text", "json"]),
    value: "FORMAT",
    help: "Format of the log, which goes to stderr: text or json.",
    defaultHelp: "text on a terminal, otherwise json",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

/** The options of the compression of responses. */
const compressionOptions = {
  compression: {
    schema: choice(["gzip", "zstd", "off"]),
    list: "commas",
    value: "off|ENCODING[,ENCODING...]",
    help: "Compress Lists and messages of watches: gzip, zstd, the first that a client accepts, or off.",
    defaultHelp: "off",
  },
  "compression-min-size": {
    ...sizeOption,
    help: "Size of a message, or of a chunk of a List, below which it is not compressed.",
    default: "4KiB",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

/**
 * Every option of `serve`, by its name: `--NAME` as a flag, `WATCH_FANOUT_NAME` (upper case, `_` for
 * `-`) in the environment and `NAME` in the file.
 */
const options = {
  etcd: {
    schema: endpoint,
    list: "commas",
    value: "URL[,URL...]",
    help: "Client URLs of the etcd members, all http or all https, or Unix sockets: unix:PATH, with TLS unixs:PATH. Default port: 2379.",
    defaultHelp: "the embedded store, see --data",
  },
  upstream: {
    schema: upstreamAddress,
    list: "commas",
    value: "HOST:PORT[,HOST:PORT...]",
    help: "Follow another watch-fanout instead of etcd, as a relay: its replicas, or other relays.",
    defaultHelp: "this service is not a relay",
  },
  "upstream-tls-ca": {
    ...fileOption,
    help: "Authorities of the certificates of --upstream. Enables TLS.",
  },
  "upstream-tls-cert": {
    ...fileOption,
    help: "Client certificate for --upstream. Needs --upstream-tls-ca.",
  },
  "upstream-tls-key": { ...fileOption, help: "Private key of --upstream-tls-cert." },
  "upstream-token-file": {
    ...fileOption,
    help: "Token of the relay at --upstream.",
  },
  resource: {
    schema: resource,
    list: "repeated",
    fileKey: "resources",
    value: "NAME=PREFIX",
    help: "A resource: the keys that begin with PREFIX, which usually ends in '/'. Repeatable; prefixes must not overlap. With --upstream: NAME, or NAME=NAME-UPSTREAM if it has another name there.",
    defaultHelp:
      "of the embedded store, default= (every key, or those of --etcd-api-namespace); with --upstream, all that the relay " +
      "may read",
  },
  ...dataOptions,
  ...listenerOptions,
  ...callerOptions,
  ...etcdOptions,
  "event-window-age": {
    ...durationOption("1s"),
    help: "Age up to which a resource's event window keeps events, within the other bounds.",
    default: "5m",
  },
  "event-window-min-events": {
    ...countOption(0),
    help: "Number of events that it keeps regardless of their age.",
    default: "1000",
  },
  "event-window-max-events": {
    ...countOption(1),
    help: "Maximum number of events in an event window.",
    default: "100000",
  },
  "event-window-max-bytes": {
    ...sizeOption,
    help: "Maximum estimated size of an event window.",
    default: "64MiB",
  },
  "deep-reads": {
    ...countOption(0),
    help: "Maximum number of watches that read events from before the event window at once. Further ones wait for 10 s. 0: such a watch has to list.",
    default: "16",
  },
  "deep-reads-per-identity": {
    ...countOption(1),
    help: "The same of one identity, in each worker.",
    default: "4",
  },
  "deep-read-revisions": {
    ...countOption(0),
    help: "Maximum number of revisions from their resume point to the current one. A watch from further back has to list. etcd accepts no writes while it reads them: 0.2 s for 100,000. 0: no limit.",
    default: "100000",
  },
  "deep-read-timeout": {
    ...durationOption("1s"),
    help: "How long one may take. Then it ends, and its client can resume it.",
    default: "5m",
  },
  "cache-dir": {
    schema: text,
    value: "DIR",
    help: "Folder in which the caches are kept, so that a later start serves and follows them without a list. It is created if absent, and is of one process at a time. Needs --etcd or --upstream.",
    defaultHelp: "nothing is kept",
  },
  workers: {
    schema: workerCount,
    value: "COUNT|auto",
    help: "Number of processes that serve clients, each with a copy of the caches; auto: one for each usable core. They divide the limits.",
    default: "1",
  },
  "stall-timeout": {
    ...durationOption("1s"),
    help: "End a stream whose client has accepted nothing for this long.",
    default: "60s",
  },
  "max-stream-age": {
    ...durationOption("0s"),
    help:
      "Approximate age at which connections and streams end gracefully. 0s: " +
      "never, nor do connections move between workers.",
    default: "1h",
  },
  ...limitOptions,
  ...xdsOptions,
  ...compressionOptions,
  "memory-ceiling": {
    ...sizeOption,
    help: "Memory of the process above which it sheds load. 75 % of V8's heap limit is a ceiling in any case.",
    defaultHelp: "90 % of the memory limit of the process's control group",
  },
  "dispatch-interval": {
    ...durationOption("0s"),
    help: "Minimum time between two deliveries of a resource's events, which then share a message. 0s: as they arrive, at most 10 ms later under load.",
    default: "0s",
  },
  "consistency-interval": {
    ...durationOption("0s"),
    help: "Approximate interval at which each cache is compared with etcd. 0s: never.",
    default: "10m",
  },
  "shutdown-timeout": {
    ...durationOption("0s"),
    help: "How long clients may take to accept their last responses after SIGTERM or SIGINT.",
    default: "10s",
  },
  ...telemetryOptions,
} as const satisfies Readonly<Record<string, OptionDefinition>>;

export type OptionName = keyof typeof options;

export const optionNames = Object.keys(options) as OptionName[];

/** The definition of an option, as the general type. */
export function definition(name: OptionName): OptionDefinition {
  return options[name];
}

/** The flag of an option. */
export function flagOf(name: string): string {
  return `--${name}`;
}

/** Prefix of every environment variable. */
export const variablePrefix = "WATCH_FANOUT_";

/** The environment variable of an option. */
export function variableOf(name: string): string {
  return variablePrefix + name.toUpperCase().replaceAll("-", "_");
}

/** The key of an option in the configuration file. */
export function fileKeyOf(name: OptionName): string {
  return definition(name).fileKey ?? name;
}

/** The value of every option. An absent list is empty. */
export type OptionValues = ValuesOf<typeof options>;

const named: readonly (readonly [heading: string, names: readonly string[]])[] = [
  ["Embedded store", Object.keys(dataOptions)],
  ["Ports and TLS", Object.keys(listenerOptions)],
  ["Callers and their rights", Object.keys(callerOptions)],
  ["xDS", Object.keys(xdsOptions)],
  ["etcd and its API", Object.keys(etcdOptions).filter((name) => name !== "etcd")],
  [
    "Caches",
    optionNames.filter((name) =>
      /^(?:event-window|deep-reads?|dispatch|consistency|cache-dir)(?:-|$)/.test(name),
    ),
  ],
  ["Limits", Object.keys(limitOptions)],
  ["Compression", Object.keys(compressionOptions)],
  ["Log, metrics and traces", Object.keys(telemetryOptions)],
  ["Process", ["workers", "stall-timeout", "max-stream-age", "memory-ceiling", "shutdown-timeout"]],
];

/** All options under headings, in the order in which help shows them. */
export const optionGroups: readonly {
  readonly heading: string;
  readonly names: readonly OptionName[];
}[] = [["What is served", optionNames.filter((name) => !isIn(named, name))] as const, ...named].map(
  ([heading, names]) => ({ heading, names: optionNames.filter((name) => names.includes(name)) }),
);

function isIn(groups: typeof named, name: string): boolean {
  return groups.some(([, names]) => names.includes(name));
}
