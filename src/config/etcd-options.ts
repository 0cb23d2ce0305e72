import {
  durationOption,
  fileOption,
  type OptionDefinition,
  switchOption,
} from "./option-definition.ts";
import { count, text } from "./value-types.ts";

/** The options of the connections to etcd, and of etcd's own API. */
export const etcdOptions = {
  "etcd-username": { schema: text, value: "NAME", help: "User name for etcd." },
  "etcd-password": {
    schema: text,
    secret: true,
    value: "PASSWORD",
    help: "Password of the etcd user.",
  },
  "etcd-password-file": {
    ...fileOption,
    help: "File with the etcd user's password. A trailing line break is ignored.",
  },
  "etcd-ca": {
    ...fileOption,
    help: "Authorities that sign etcd's certificates, in PEM.",
    defaultHelp: "the authorities that Node.js trusts",
  },
  "etcd-cert": { ...fileOption, help: "Client certificate for etcd, in PEM." },
  "etcd-key": { ...fileOption, help: "Private key of --etcd-cert, in PEM." },
  "etcd-history-key": {
    schema: text,
    value: "KEY",
    help: "Key in etcd with the id of its history, the same for all replicas. It is never part of a resource.",
    default: "/watchfanout/history",
  },
  "etcd-history-create": {
    ...switchOption,
    help: "Create --etcd-history-key where it does not exist. Without it some restores of etcd are not detected. etcd-proxy has it off.",
    default: "on",
  },
  "etcd-insecure-skip-verify": {
    ...switchOption,
    help: "Accept any certificate of etcd. For tests: machines between can read and change all.",
    default: "off",
  },
  "etcd-keepalive-time": {
    ...durationOption("5s"),
    help: "Time without a response after which a connection to etcd with open calls gets a keepalive ping. etcd closes connections with more pings than one per 5s (its --grpc-keepalive-min-time).",
    default: "7s",
  },
  "etcd-keepalive-timeout": {
    ...durationOption("100ms"),
    help: "How long etcd may take to answer a keepalive ping. Then the connection is closed, and its calls fail.",
    default: "3s",
  },
  "etcd-keepalive-without-calls": {
    ...switchOption,
    help: "Send keepalive pings also on connections without open calls. etcd closes those as an attack, unless a proxy answers the pings.",
    default: "off",
  },
  "etcd-endpoints-sync-interval": {
    ...durationOption("100ms"),
    help: "Interval at which etcd is asked for its members, whose client URLs then replace those of --etcd. With authentication it needs --etcd-username.",
    defaultHelp: "never",
  },
  "etcd-api": {
    ...switchOption,
    help: "Serve etcd's own gRPC API on --listen as well, as etcd grpc-proxy does: watches and reads of the keys of a --resource from its cache, everything else by etcd, or by --upstream, which must have this API as well.",
    default: "off",
  },
  "etcd-api-namespace": {
    schema: text,
    value: "PREFIX",
    help:
      "Serve only the keys with this prefix by the etcd API, without it: as if there were no others. The resources must be " +
      "below it. At a relay it is a prefix of the upstream's keys.",
    defaultHelp: "every key",
  },
  "watch-fanout-api": {
    ...switchOption,
    help: "Serve ListWatchService and WriteService. Off needs --etcd-api. etcd-proxy has it off.",
    default: "on",
  },
  "advertise-client-url": {
    schema: text,
    value: "URL",
    help: "URL that MemberList of the etcd API names for every member, so that clients stay with this service.",
    defaultHelp: "the members' own",
  },
  "resolver-prefix": {
    schema: text,
    value: "PREFIX",
    help: "Register --advertise-client-url below this key of etcd, in the format of etcd's naming. MemberList of the etcd API then names all that are registered there.",
    defaultHelp: "not registered",
  },
  "resolver-ttl": {
    schema: count(1),
    value: "SECONDS",
    help: "For how long this service stays registered after its process has ended.",
    default: "60",
  },
  "watch-progress-notify-interval": {
    ...durationOption("100ms"),
    help: "Interval of the progress notifications of the etcd API's watches that ask for them.",
    default: "10m",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
