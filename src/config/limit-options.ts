import type { OptionDefinition } from "./option-definition.ts";
import { count, duration, size } from "./value-types.ts";

/** The options that limit what clients may have, in all and for each identity. */
export const limitOptions = {
  "max-streams": {
    schema: count(1),
    value: "COUNT",
    help: "Maximum number of open streams: watches, health watches, reflection, calls of the etcd API.",
    default: "200000",
  },
  "max-streams-per-identity": {
    schema: count(0),
    value: "COUNT",
    help: "The same of one identity, or host of anonymous callers. 0: no limit.",
    default: "0",
  },
  "max-subscribe-watches": {
    schema: count(1),
    value: "COUNT",
    help: "Maximum number of watches on one Subscribe stream. Each also counts as a stream.",
    default: "10000",
  },
  "max-connections": {
    schema: count(1),
    value: "COUNT",
    help: "Maximum number of open connections. Fewer are accepted if the hard limit of open files is less than 640 above it.",
    default: "20000",
  },
  "max-connections-per-identity": {
    schema: count(0),
    value: "COUNT",
    help: "The same of one identity, that of a connection's first call. 0: no limit.",
    default: "0",
  },
  "max-reads-in-flight": {
    schema: count(1),
    value: "COUNT",
    help: "Maximum number of reads (Get, List) that are handled at once. Further ones wait, except those of identities with fewer than 16.",
    default: "512",
  },
  "max-writes-in-flight": {
    schema: count(1),
    value: "COUNT",
    help: "The same for writes (Put, Delete) that the store is processing.",
    default: "256",
  },
  "max-queued-requests-per-identity": {
    schema: count(1),
    value: "COUNT",
    help: "Maximum number of requests of one identity that wait.",
    default: "10000",
  },
  "max-queue-time": {
    schema: duration("10ms"),
    value: "DURATION",
    help: "How long a request may wait.",
    default: "5s",
  },
  "max-requests-per-identity": {
    schema: count(0),
    value: "COUNT",
    help: "Maximum number of requests of one identity, waiting ones included. 0: no limit.",
    default: "0",
  },
  "max-watch-rate": {
    schema: count(0),
    value: "COUNT",
    help: "Maximum number of new watches per second, on average. 0: no limit.",
    default: "0",
  },
  "max-watch-rate-per-identity": {
    schema: count(0),
    value: "COUNT",
    help: "The same of one identity. 0: no limit.",
    default: "0",
  },
  "max-send-rate": {
    schema: size,
    value: "SIZE",
    help: "Maximum size of what is sent per second, on average.",
    defaultHelp: "no limit",
  },
  "max-send-rate-per-identity": {
    schema: size,
    value: "SIZE",
    help: "The same to one identity.",
    defaultHelp: "no limit",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
