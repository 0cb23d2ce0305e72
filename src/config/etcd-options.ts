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
    help: "File with that password.",
  },
  "etcd-ca": {
    ...fileOption,
    help: "Authorities that sign etcd's certificates.",
    defaultHelp: "the authorities that Node.js trusts",
  },
  "etcd-cert": { ...fileOption, help: "Client certificate for etcd." },
  "etcd-key": { ...fileOption, help: "Private key of --etcd-cert." },
  "etcd-history-key": {
    schema: text,
    value: "KEY",
    help: "Key in etcd with the id of its history, the same for all replicas.",
    default: "/watchfanout/history",
  },
  "etcd-history-create": {
    ...switchOption,
    help: "Create --etcd-history-key if absent. Without it some restores of etcd are not detected. etcd-proxy has it off.",
    default: "on",
  },
  "etcd-insecure-skip-verify": {
    ...switchOption,
    help: "Accept any certificate of etcd. For tests only.",
    default: "off",
  },
  "etcd-keepalive-time": {
    ...durationOption("5s"),
    help: "Silence of a connection to etcd with open calls after which it is sent a keepalive ping. etcd permits one per 5s (its --grpc-keepalive-min-time).",
    default: "7s",
  },
  "etcd-keepalive-timeout": {
    ...durationOption("100ms"),
    help: "How long etcd may take to answer one. Then the connection is closed.",
    default: "3s",
  },
  "etcd-keepalive-without-calls": {
    ...switchOption,
    help: "Send them also without open calls. etcd closes such connections, unless a proxy answers the pings.",
    default: "off",
  },
  "etcd-endpoints-sync-interval": {
    ...durationOption("100ms"),
    help: "Interval at which etcd's member list replaces the URLs of --etcd.",
    defaultHelp: "never",
  },
  "etcd-api": {
    ...switchOption,
    help: "Serve etcd's own gRPC API on --listen as well: watches and reads of the keys of a --resource from its cache, everything else by etcd, by the embedded store, or by --upstream, which must have this API, too.",
    default: "off",
  },
  "etcd-api-namespace": {
    schema: text,
    value: "PREFIX",
    help:
      "Serve only the keys with this prefix by the etcd API, without it. The resources must be below it. At a relay it is " +
      "a prefix of the upstream's keys.",
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
    help: "URL that MemberList names for every member, so that clients stay with this service.",
    defaultHelp: "the members' own",
  },
  "resolver-prefix": {
    schema: text,
    value: "PREFIX",
    help: "Register --advertise-client-url below this key of etcd, in the format of etcd's naming. MemberList then names all that are registered.",
    defaultHelp: "not registered",
  },
  "resolver-ttl": {
    schema: count(1),
    value: "SECONDS",
    help: "How long it stays registered after its process has ended.",
    default: "60",
  },
  "watch-progress-notify-interval": {
    ...durationOption("100ms"),
    help: "Interval of the etcd API's progress notifications.",
    default: "10m",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
